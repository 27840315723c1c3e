"""Rows that stood in a program's stores before it started: those of earlier programs are not this run's.

A file that is only appended to is read from where it ended; one that the program begins anew, from its start.
Which of the two it is shows once it has changed.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.bridge.source import Database, Lines, MetricSource, Watched
from monitoring.bridge.sources import SOURCE_KINDS, source_kinds
from monitoring.errors import UserError, unwritable

# So many bytes at the end of a file tell whether what follows was appended.
TAIL = 64


class Standing:
    """A store before a program started; bridge.json has it by the names of its fields."""

    def __init__(
        self, size: int, changed: int, tail: str = "", place: int | None = None, seq: int = 0
    ) -> None:
        self.size = size
        self.changed = changed
        """The time of its last change (ns)."""
        self.tail = tail
        """Its last bytes, as hexadecimal digits; of an appended one."""
        self.place = place
        """The position after all that stood there, if that was found out."""
        self.seq = seq
        """The run's last record by then."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Standing) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it is compared alone

    def at(self, *, place: int | None = None, seq: int | None = None) -> Standing:
        """Return the same store with another place or record."""
        place, seq = self.place if place is None else place, self.seq if seq is None else seq
        return Standing(self.size, self.changed, self.tail, place, seq)

    @property
    def is_shared(self) -> bool:
        """Whether it may hold rows of several programs."""
        return bool(self.tail) or self.place is not None

    def begin(self, source: MetricSource) -> int | None:
        """Return the position at which the program's own rows begin; None while it has written none."""
        if not isinstance(source, Lines):
            return self.place or 0
        status = source.path.stat()
        if (status.st_size, status.st_mtime_ns) == (self.size, self.changed):
            return None
        if status.st_size <= self.size or _tail(source.path, self.size) != self.tail:
            return 0
        return source.place_at(self.size) if self.place is None else self.place


def stores_before(watched: Watched) -> dict[Path, Standing]:
    """Return how the stores are, before the program starts, that could be taken for its own."""
    found = {}
    recent = copy.copy(watched)
    recent.neighbors = None
    everything = copy.copy(recent)
    everything.started = 0.0
    for module in source_kinds().values():
        for source in module.find(everything if getattr(module, "SHARED", False) else recent):
            with contextlib.suppress(OSError, ValueError):
                status = source.path.stat()
                found[source.path] = Standing(
                    status.st_size,
                    status.st_mtime_ns,
                    _tail(source.path, status.st_size) if isinstance(source, Lines) else "",
                    source.end() if isinstance(source, Database) else None,
                )
    return found


def kept_before(watched: Watched, stores: Mapping[Path, Standing]) -> dict[Path, Standing]:
    """Return what stood in files and databases that are not the run's alone, for bridge.json.

    A bridge that continues after a kill needs it, where nothing of such a store was recorded yet.
    """
    return {
        path: one
        for path, one in stores.items()
        if path in watched.follow or (one.place and not path.is_relative_to(watched.directory))
    }


def read_known(file: Path) -> tuple[list[dict[str, Any]], dict[Path, Standing]]:
    """Return what bridge.json has: the sources that were found, what stood in some of them. UserError if it
    is damaged.
    """
    import orjson  # most programs wait for nothing of this

    try:
        content = orjson.loads(file.read_bytes())
        sources = [
            entry
            for entry in content["sources"]
            if entry["kind"] in SOURCE_KINDS.names and isinstance(entry["path"], str)
        ]
        return sources, {Path(path): Standing(**one) for path, one in content.get("before", {}).items()}
    except FileNotFoundError:
        return [], {}
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{file} cannot be read: {error}", hint="it is damaged: remove it") from error


def write_known(file: Path, sources: Sequence[Mapping[str, Any]], before: Mapping[Path, Standing]) -> None:
    """Write bridge.json. RunDirectoryError if that cannot be."""
    import orjson  # as above

    from monitoring.journal.atomic_file import write_atomically

    content: dict[str, object] = {"sources": sources}
    if before:
        content["before"] = {str(path): vars(one) for path, one in before.items()}
    try:
        write_atomically(file, orjson.dumps(content, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise unwritable(file, error) from error


def _tail(path: Path, size: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, size - TAIL))
        return file.read(min(size, TAIL)).hex()
