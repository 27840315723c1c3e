"""Requests to a running training: each a file of its own in DIRECTORY/requests/, taken in the order of names.

    {"log_every": 100, "timestamp": 1703123456.789}

`send` writes one. The training looks between two steps (`ControlFile.requests`), applies what is requested
and answers in its journal: a control_change record for each change, or one control_refused record with the
reason. Then it removes the file (`ControlFile.answered`). So each request is answered once: the file outlives
a training that is killed before its answer, and the journal says what was answered by one that is killed
before it has removed the file.

DIRECTORY/control.json, one file that a dashboard writes again and again, is taken in the same way, and stays.
Nothing is decided by a sender's clock. What stands in a file is never trusted: it is checked before it is
opened, and read up to a bound, so that no content and no kind of file makes a training wait or fail.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias, TypeGuard

import orjson

from monitoring.errors import refusal, unwritable
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import CONTROL_JSON, JOURNAL, REQUESTS
from monitoring.journal.records import read_records

POLL_SECONDS = 3.0
"""Seconds between looks for files; only a new or changed one is read."""

DEBOUNCE_SECONDS = 30.0
"""Seconds for which the next change of a setting waits; of several that wait the last is applied."""

LOG_EVERY = range(5, 2001)
"""Steps between two records; a value beyond it becomes the nearest one in it."""

LR_FACTORS = (1e-4, 1e2)
PROFILED_STEPS = range(1, 1001)

# A request has some hundred bytes.
MOST_BYTES = 16384
MOST_CHARACTERS = 100
# Files of one look; the next ones come at the next look.
MOST_FILES = 1000
_GREATEST = 1e300


class RequestError(ValueError):
    """Why a request cannot be taken, as the end of a sentence."""


Change: TypeAlias = bool | int | float


@dataclass(frozen=True)
class ControlRequest:
    """One request: what to change, by the words of WORDS."""

    changes: Mapping[str, Change]
    """Word -> value, in the order of WORDS: settings first, the end of the training last."""
    timestamp: float
    """When it was sent, UTC epoch seconds by the sender's clock, by which nothing is decided."""
    source: str = CONTROL_JSON
    """Who sent it, as the sender says."""
    requested: Mapping[str, object] = field(default_factory=dict)
    """Word -> its value in the file, where another one is applied."""
    name: str = ""
    """Name of its file and hash of its content, by which records name it (`request`)."""
    is_replayed: bool = False
    """Whether a record of an earlier attempt has it, whose steps are done again."""

    @property
    def file(self) -> str:
        return self.name.rpartition(":")[0]

    @property
    def settings(self) -> frozenset[str]:
        """The settings that it changes for the steps to come; none where the training is to stop."""
        return SETTINGS.intersection(self.changes) if "stop" not in self.changes else frozenset()


@dataclass(frozen=True)
class RefusedRequest:
    """A request that is not applied."""

    reason: str
    timestamp: float | None = None
    """The request's timestamp, where one can be read."""
    source: str = CONTROL_JSON
    name: str = ""
    """Name of its file and hash of its content, as in a ControlRequest."""

    @property
    def file(self) -> str:
        return self.name.rpartition(":")[0]


def _count(value: object, allowed: range) -> int:
    whole = _whole(value)
    if whole not in allowed:
        raise RequestError(f"is outside {allowed.start}..{allowed.stop - 1}")
    return whole


def _clamped_interval(value: object) -> int:
    return min(max(_whole(value), LOG_EVERY.start), LOG_EVERY.stop - 1)


def _whole(value: object) -> int:
    number = _number(value)
    if number != int(number):
        raise RequestError("is not an integer")
    return int(number)


def _number(value: object) -> float:
    # NaN, too, is not between these two
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_GREATEST <= value <= _GREATEST:
        raise RequestError("is not a number")
    return value


def _factor(value: object) -> float:
    number, (least, most) = float(_number(value)), LR_FACTORS
    if not least <= number <= most:
        raise RequestError(f"is outside {least:g}..{most:g}")
    return number


def _yes(value: object) -> bool:
    if value is not True:
        raise RequestError("is not true")
    return True


WORDS: Mapping[str, Callable[[object], Change]] = {
    "log_every": _clamped_interval,
    "lr_factor": _factor,
    "profile": lambda value: _count(value, PROFILED_STEPS),
    "evaluate": _yes,
    "checkpoint": _yes,
    "stop": _yes,
}
"""Word of a request -> function that returns its value from the one in the file, or raises RequestError."""

SETTINGS = frozenset({"log_every", "lr_factor"})
"""Words whose values stay: a checkpoint keeps them."""

_ABOUT = ("timestamp", "source")


def parse_request(content: object, *, name: str = "") -> ControlRequest:
    """Return the request in a file's JSON value; RequestError, with nothing applied, if it is malformed."""
    if not isinstance(content, dict):
        raise RequestError("it is not a JSON object")
    try:
        timestamp = float(_number(content.get("timestamp")))
    except RequestError:
        raise RequestError("timestamp is not a number: seconds since 1970, UTC") from None
    source = content.get("source", CONTROL_JSON)
    if not _is_name(source):
        raise RequestError(f"source is not a text of up to {MOST_CHARACTERS} printable characters")
    for word in content:
        if word not in WORDS and word not in _ABOUT:
            near = get_close_matches(word, WORDS, n=1)
            hint = f"did you mean {near[0]}" if near else f"known: {', '.join(WORDS)}"
            raise RequestError(f"{shown(word)} is unknown; {hint}")
    changes: dict[str, Change] = {}
    for word, read in WORDS.items():
        if word in content:
            try:
                changes[word] = read(content[word])
            except RequestError as error:
                raise RequestError(f"{word}={shown(content[word])} {error}") from None
    if not changes:
        raise RequestError(f"it changes nothing; known: {', '.join(WORDS)}")
    requested = {word: content[word] for word, value in changes.items() if content[word] != value}
    return ControlRequest(changes, timestamp, source, requested, name)


def _is_name(source: object) -> TypeGuard[str]:
    return isinstance(source, str) and source.isprintable() and len(source) <= MOST_CHARACTERS


def _sender(content: object) -> tuple[float | None, str]:
    """Return timestamp and source of a request that cannot be taken, as far as they can be read."""
    about = content if isinstance(content, dict) else {}
    source = about.get("source")
    try:
        return _number(about.get("timestamp")), source if _is_name(source) else CONTROL_JSON
    except RequestError:
        return None, source if _is_name(source) else CONTROL_JSON


def shown(value: object) -> str:
    """Return a value of a stranger in a message, printable and short."""
    text = value if isinstance(value, str) else repr(value)[: 2 * MOST_CHARACTERS]
    return ascii(text)[1:-1][:MOST_CHARACTERS]


_Identity: TypeAlias = tuple[int, int, int, int]
_Found: TypeAlias = ControlRequest | RefusedRequest


class ControlFile:
    """The requests in the files of a run directory, each once, whatever became of the trainings before."""

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """The journal in `directory` says which requests earlier attempts have answered."""
        self.directory = directory
        self._clock = clock
        self._next_look = 0.0
        self._debounced_until = dict.fromkeys(SETTINGS, -math.inf)
        self._waiting: list[ControlRequest] = []
        self._known: dict[str, _Identity] = {}  # versions of files that need no other look
        self._half: dict[str, _Identity] = {}
        self._earlier = {file: identity for file, identity, _ in self._files()}
        # Request -> its words that are answered; read only where a file is there that may have been.
        self._answered = _answered_in(directory / JOURNAL) if self._earlier else {}

    def requests(self) -> Sequence[_Found]:
        """Return what is to be applied, or refused, now; to be called between two steps, nearly always free.

        Nothing here raises or waits, whatever stands in the place of a file. The caller answers each in the
        journal, then calls `answered`.
        """
        now = self._clock()
        if now < self._next_look:
            return ()
        self._next_look = now + POLL_SECONDS
        found: list[_Found] = []
        for one in self._new():
            if isinstance(one, ControlRequest):
                self._waiting.append(one)
            else:
                found.append(one)
        return [*found, *self._due(now)] if self._waiting else found

    def answered(self, found: _Found) -> None:
        """Remove the file of one of `requests`; to be called once its answer is in the journal."""
        words = found.changes if isinstance(found, ControlRequest) else WORDS
        self._answered.setdefault(found.name, set()).update(words)
        file = found.file
        if file == CONTROL_JSON or file not in self._known:
            return
        with self._folder() as folder, contextlib.suppress(OSError):
            if folder is not None and _identity(file, folder) == self._known[file]:
                os.unlink(file, dir_fd=folder)  # what cannot be removed, as a folder, stays known instead
                del self._known[file]

    def rest(self, reason: str) -> Sequence[RefusedRequest]:
        """Return each request that is there and not answered, refused: for the end of a training."""
        new = self._new()
        found, self._waiting = [*self._waiting, *new], []
        return [RefusedRequest(reason, one.timestamp, one.source, one.name) for one in found]

    def _due(self, now: float) -> Iterator[_Found]:
        """Yield requests that have waited long enough, and refuse those that a later one replaces."""
        waiting, self._waiting = self._waiting, []
        for place, one in enumerate(waiting):
            later = frozenset[str]().union(*(other.settings for other in waiting[place + 1 :]))
            if one.settings and one.settings == one.changes.keys() and one.settings <= later:
                yield RefusedRequest(
                    f"replaced by a later request within {DEBOUNCE_SECONDS:g} s",
                    *(one.timestamp, one.source, one.name),
                )
            elif any(now < self._debounced_until[name] for name in one.settings):
                self._waiting.append(one)
            else:
                self._debounced_until.update(dict.fromkeys(one.settings, now + DEBOUNCE_SECONDS))
                yield one

    def _new(self) -> list[_Found]:
        """Return what is in new or changed files; half a file is left for the next look, once."""
        found: list[tuple[_Found, bool]] = []
        present: dict[str, _Identity] = {}
        half: dict[str, _Identity] = {}
        for file, identity, folder in self._files():
            if self._known.get(file) != identity:
                request = self._request(file, folder, is_second_look=self._half.get(file) == identity)
                if request is None:
                    half[file] = identity
                    continue
                found.append((request, self._earlier.get(file) == identity))
            present[file] = identity
        self._known, self._half = present, half
        self._waiting = [it for it in self._waiting if it.file == CONTROL_JSON or it.file in present]
        return [left for one in found if (left := self._unanswered(*one)) is not None]

    def _request(self, file: str, folder: int | None, *, is_second_look: bool) -> _Found | None:
        """Return the request in a file, None where it may be there at the next look."""
        content, name = None, f"{shown(file)}:"
        try:
            data = _data(file if folder is not None else self.directory / file, folder)
            name = _name(file, data)
            content = orjson.loads(data)
            return parse_request(content, name=name)
        except orjson.JSONDecodeError:
            if not is_second_look:  # its writer may be at it
                return None
            return RefusedRequest("it is not JSON, or half of it", name=name)
        except RequestError as error:
            return RefusedRequest(str(error), *_sender(content), name=name)
        except FileNotFoundError:  # withdrawn meanwhile
            return None
        except OSError as error:
            reason = f"it cannot be read: {refusal(error)}"
            return RefusedRequest(reason, name=name)

    def _unanswered(self, found: _Found, is_earlier: bool) -> _Found | None:
        """Return the part of a request that is not answered yet; None if there is none."""
        words = self._answered.get(found.name)
        if words is None or not (is_earlier or isinstance(found, ControlRequest)):
            return found
        if isinstance(found, ControlRequest):
            left = {word: value for word, value in found.changes.items() if word not in words}
            if left:
                return replace(found, changes=left)
            if not is_earlier:
                reason = "stale: the same request, its timestamp included, was answered before"
                return RefusedRequest(reason, found.timestamp, found.source, found.name)
        self.answered(found)  # as the attempt would have done that was killed after its answer
        return None

    def _files(self) -> Iterator[tuple[str, _Identity, int | None]]:
        """Name and version of each file that may be a request, and its folder; none for control.json."""
        with self._folder() as folder:
            for file in waiting(folder) if folder is not None else ():
                if (identity := _identity(file, folder)) is not None:
                    yield file, identity, folder
        if (identity := _identity(self.directory / CONTROL_JSON)) is not None:
            yield CONTROL_JSON, identity, None

    @contextlib.contextmanager
    def _folder(self) -> Iterator[int | None]:
        """A descriptor of requests/, None without one; no link is followed: nothing is removed elsewhere."""
        try:
            fd = os.open(
                self.directory / REQUESTS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except OSError:
            yield None
            return
        try:
            yield fd
        finally:
            os.close(fd)


def _answered_in(journal: Path) -> dict[str, set[str]]:
    """Return the words of each request that a journal answers; all words of one that it says is refused."""
    found: dict[str, set[str]] = {}
    for record, _ in read_records(journal):
        name = record.get("request")
        if isinstance(name, str) and record.get("event") in ("control_change", "control_refused"):
            words = found.setdefault(name, set())
            words.update([str(record["control"])] if "control" in record else WORDS)
    return found


def waiting(folder: int | Path) -> list[str]:
    """Return the first files of requests that wait in a folder; hidden ones are half-written."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith(".")]
    except OSError:
        return []
    return sorted(names)[:MOST_FILES]


def _name(file: str, data: bytes) -> str:
    return f"{shown(file)}:{hashlib.sha256(data).hexdigest()[:16]}"


def _identity(file: Path | str, folder: int | None = None) -> _Identity | None:
    """Return what tells a file from another, or from another version; None without a file."""
    try:
        status = os.stat(file, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _data(file: Path | str, folder: int | None = None) -> bytes:
    """Return the content; RequestError for anything but a small plain file.

    Neither a link is followed nor a pipe waited for, also one that took the file's place a moment ago.
    """
    if not stat.S_ISREG(os.stat(file, dir_fd=folder, follow_symlinks=False).st_mode):
        raise RequestError("it is not a plain file")
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(file, flags, dir_fd=folder)
    try:
        # again: another file may have taken its place since
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise RequestError("it is not a plain file")
        # one byte more than allowed shows that a file is too large
        data = os.read(fd, MOST_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MOST_BYTES:
        raise RequestError(f"it has more than {MOST_BYTES} bytes")
    return data


def send(directory: Path, changes: Mapping[str, object], *, source: str) -> ControlRequest:
    """Write a request for the training that writes in a directory; whole, or not at all.

    Its name is after those that are there, and no other sender's. RequestError for what the training would
    refuse, RunDirectoryError where the file cannot be written.
    """
    content = {**changes, "timestamp": time.time(), "source": source}
    request = parse_request(content)
    data = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    folder = directory / REQUESTS
    try:
        folder.mkdir(exist_ok=True)
        numbers = [
            int(number) for name in os.listdir(folder) if (number := name.partition("-")[0]).isdecimal()
        ]
        file = f"{max(numbers, default=0) + 1:06}-{secrets.token_hex(8)}.json"
        write_atomically(folder / file, data)
    except OSError as error:
        raise unwritable(folder, error) from error
    return replace(request, name=_name(file, data))


def path_of(directory: Path, request: ControlRequest) -> Path:
    """Return the file of a request that `send` has written."""
    return directory / REQUESTS / request.file


def withdraw(directory: Path, request: ControlRequest) -> bool:
    """Take back a request that `send` has written; False where its file is gone, as after its answer."""
    try:
        path_of(directory, request).unlink()
    except FileNotFoundError:
        return False
    return True
