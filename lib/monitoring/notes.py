"""Tags and a note of a run, which a person has given it: notes.json in its directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from monitoring.errors import MonitoringError, unwritable
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.encoding.json_shape import json_lines
from monitoring.journal.files import NOTES_JSON

MOST_TAGS, LONGEST_TAG, LONGEST_NOTE = 20, 50, 20_000


class NotesError(MonitoringError):
    """Tags or a note that cannot be kept."""


@dataclass(frozen=True)
class Notes:
    """The contents of notes.json."""

    tags: tuple[str, ...] = ()
    text: str = ""


def read_notes(directory: Path) -> Notes:
    """Return the stored notes; empty without a file, or if it is damaged."""
    try:
        content = orjson.loads((directory / NOTES_JSON).read_bytes())
        return checked(content["tags"], content["note"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, NotesError):
        return Notes()


def write_notes(directory: Path, notes: Notes) -> None:
    """Keep them in place of what was there; without tags and text the file goes. RunDirectoryError if the
    disk takes nothing.
    """
    path = directory / NOTES_JSON
    try:
        if notes == Notes():
            path.unlink(missing_ok=True)
            return
        write_atomically(path, json_lines({"tags": notes.tags, "note": notes.text}))
    except OSError as error:
        raise unwritable(path, error) from error


def checked(tags: object, text: object) -> Notes:
    """Return tags without duplicates, and a note; NotesError if they are not valid."""
    if not isinstance(tags, list) or not isinstance(text, str):
        raise NotesError("a note is a text, and tags are a list of words", hint='tags: ["baseline"]')
    found = tuple(dict.fromkeys(_tag(one) for one in tags))
    if len(found) > MOST_TAGS:
        raise NotesError(f"a run has at most {MOST_TAGS} tags", hint="take some away")
    if len(text) > LONGEST_NOTE:
        raise NotesError(
            f"a note has at most {LONGEST_NOTE:,} characters", hint="keep a file in the run's directory"
        )
    return Notes(found, text.strip())


def _tag(one: object) -> str:
    word = one.strip() if isinstance(one, str) else ""
    if not word or len(word) > LONGEST_TAG or not word.isprintable() or "," in word:
        raise NotesError(
            f"{str(one)[:80]!r} is not a tag", hint=f"up to {LONGEST_TAG} characters, without a comma"
        )
    return word


def changed(
    notes: Notes, *, add: Sequence[str] = (), remove: Sequence[str] = (), text: str | None = None
) -> Notes:
    """Return notes with some tags more and some less, and another text where one is given. As `checked`."""
    kept = [tag for tag in [*notes.tags, *add] if tag not in remove]
    return checked(kept, notes.text if text is None else text)
