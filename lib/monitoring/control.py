"""Requests to a running training, by one file: DIRECTORY/control.json.

    {"log_every": 100, "timestamp": 1703123456.789}

`send` writes it. The training looks at it between two steps (`ControlFile.requests`), applies what is
requested, and answers in its journal: a control_change record for each change, or one control_refused record
with the reason. What stands in the file is never trusted: it is checked before it is opened, and read up to
a bound, so that no content and no kind of file makes a training wait or fail.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias, TypeGuard

import orjson

from monitoring.errors import unwritable
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import CONTROL_JSON

POLL_SECONDS = 3.0
"""At most so often the file is looked at: one stat, and only a changed file is read."""

DEBOUNCE_SECONDS = 30.0
"""So long after a change of a setting the next one waits; of several that wait the last is applied."""

LOG_EVERY = range(5, 2001)
"""Steps between two records; a value beyond it becomes the nearest one in it."""

LR_FACTORS = (1e-4, 1e2)
PROFILED_STEPS = range(1, 1001)

# A request has some hundred bytes.
MOST_BYTES = 16384
MOST_CHARACTERS = 100
_GREATEST = 1e300
# How far a sender's clock may be ahead of ours, in seconds.
MOST_AHEAD = 3600.0


class RequestError(ValueError):
    """Why a request cannot be taken, as the end of a sentence."""


Change: TypeAlias = bool | int | float


@dataclass(frozen=True)
class ControlRequest:
    """One request: what to change, by the words of WORDS."""

    changes: Mapping[str, Change]
    """In the order of WORDS: settings first, the end of the training last."""
    timestamp: float
    """When it was sent, UTC epoch seconds by the sender's clock; with it a request is told from the next."""
    source: str = CONTROL_JSON
    """Who sent it, as the sender says."""
    requested: Mapping[str, object] = field(default_factory=dict)
    """What was in the file where another value is applied."""

    @property
    def is_debounced(self) -> bool:
        """Whether it changes a setting, and not only so that the training stops."""
        return not SETTINGS.isdisjoint(self.changes) and "stop" not in self.changes


@dataclass(frozen=True)
class RefusedRequest:
    """A request that is not applied."""

    reason: str
    timestamp: float | None = None
    """Of the request, where one can be read."""
    source: str = CONTROL_JSON


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
        raise RequestError("is no integer")
    return int(number)


def _number(value: object) -> float:
    # NaN, too, is not between these two
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_GREATEST <= value <= _GREATEST:
        raise RequestError("is no number")
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
"""Each word of a request, and what makes its value of the one in the file, or raises RequestError."""

SETTINGS = frozenset({"log_every", "lr_factor"})
"""Those that stay: a checkpoint keeps them."""

_ABOUT = ("timestamp", "source")


def parse_request(content: object, *, now: float, answered: float = 0.0) -> ControlRequest:
    """The request in the JSON value of a file; RequestError for anything else, and then nothing of it counts.

    `now` is the time, `answered` the timestamp of the newest request that was answered.
    """
    if not isinstance(content, dict):
        raise RequestError("it is no JSON object")
    timestamp = _timestamp(content, now=now, answered=answered)
    source = content.get("source", CONTROL_JSON)
    if not _is_name(source):
        raise RequestError(f"source is no text of up to {MOST_CHARACTERS} printable characters")
    for name in content:
        if name not in WORDS and name not in _ABOUT:
            near = get_close_matches(name, WORDS, n=1)
            hint = f"did you mean {near[0]}" if near else f"known: {', '.join(WORDS)}"
            raise RequestError(f"{shown(name)} is unknown; {hint}")
    changes: dict[str, Change] = {}
    for name, read in WORDS.items():
        if name in content:
            try:
                changes[name] = read(content[name])
            except RequestError as error:
                raise RequestError(f"{name}={shown(content[name])} {error}") from None
    if not changes:
        raise RequestError(f"it changes nothing; known: {', '.join(WORDS)}")
    requested = {name: content[name] for name, value in changes.items() if content[name] != value}
    return ControlRequest(changes, timestamp, source, requested)


def _is_name(source: object) -> TypeGuard[str]:
    return isinstance(source, str) and source.isprintable() and len(source) <= MOST_CHARACTERS


def _sender(content: object) -> tuple[float | None, str]:
    """Timestamp and source of what cannot be taken, as far as they can be read."""
    about = content if isinstance(content, dict) else {}
    source = about.get("source")
    try:
        return _number(about.get("timestamp")), source if _is_name(source) else CONTROL_JSON
    except RequestError:
        return None, source if _is_name(source) else CONTROL_JSON


def _timestamp(content: Mapping[str, object], *, now: float, answered: float) -> float:
    try:
        timestamp = float(_number(content.get("timestamp")))
    except RequestError:
        raise RequestError("timestamp is no number: seconds since 1970, UTC") from None
    if timestamp > now + MOST_AHEAD:
        raise RequestError(f"timestamp {timestamp:.15g} is in the future: seconds since 1970, UTC")
    if timestamp <= answered:
        raise RequestError(f"stale: timestamp {timestamp:.15g} is not after {answered:.15g}, answered before")
    return timestamp


def shown(value: object) -> str:
    """A value of a stranger in a message, printable and short."""
    text = value if isinstance(value, str) else repr(value)[: 2 * MOST_CHARACTERS]
    return ascii(text)[1:-1][:MOST_CHARACTERS]


_Identity: TypeAlias = tuple[int, int, int, int]


class ControlFile:
    """The requests in the control.json of a run, each once."""

    def __init__(
        self,
        directory: Path,
        *,
        answered: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """A file that is there already is refused as stale, unless it was `answered` (its timestamp)."""
        self.path = directory / CONTROL_JSON
        self.answered = answered
        """Timestamp of the newest request that was answered."""
        self._clock, self._wall_clock = clock, wall_clock
        self._next_look = 0.0
        self._debounced_until = -math.inf
        self._waiting: ControlRequest | None = None
        self._earlier = self._seen = self._identity()
        self._half: _Identity | None = None

    def requests(self) -> Sequence[ControlRequest | RefusedRequest]:
        """What is to be applied, or refused, now; to be called between two steps, nearly always free.

        Nothing here raises or waits, whatever stands in the place of the file.
        """
        now = self._clock()
        if now < self._next_look:
            return ()
        self._next_look = now + POLL_SECONDS
        found: list[ControlRequest | RefusedRequest] = []
        if (new := self._new()) is not None:
            if self._waiting is not None:
                waited = self._waiting
                reason = f"replaced by another request within {DEBOUNCE_SECONDS:g} s"
                found.append(RefusedRequest(reason, waited.timestamp, waited.source))
                self._waiting = None
            if isinstance(new, ControlRequest):
                self.answered = new.timestamp
                self._waiting = new
            else:
                found.append(new)
        waiting = self._waiting
        if waiting is not None and (not waiting.is_debounced or now >= self._debounced_until):
            if waiting.is_debounced:
                self._debounced_until = now + DEBOUNCE_SECONDS
            found.append(waiting)
            self._waiting = None
        return found

    def _new(self) -> ControlRequest | RefusedRequest | None:
        """The request in a file that has changed; None without one, and for half a file at its first look."""
        identity = self._identity()
        if identity is None or (identity == self._seen and self._earlier is None):
            return None
        is_earlier = identity == self._earlier
        self._earlier = None
        answered = 0.0 if is_earlier else self.answered
        content: object = None
        try:
            content = orjson.loads(self._data())
            self._seen = identity
            request = parse_request(content, now=self._wall_clock(), answered=answered)
        except orjson.JSONDecodeError:
            if identity != self._half:  # its writer may be at it
                self._half = identity
                return None
            self._seen = identity
            return RefusedRequest("it is no JSON, or half of it")
        except RequestError as error:
            self._seen = identity
            return RefusedRequest(str(error), *_sender(content))
        except OSError as error:
            self._seen = identity
            return RefusedRequest(f"it cannot be read: {(error.strerror or str(error)).lower()}")
        if is_earlier:
            if request.timestamp <= self.answered:
                return None
            reason = "stale: it was there before the training began"
            return RefusedRequest(reason, request.timestamp, request.source)
        return request

    def _identity(self) -> _Identity | None:
        """By which a file is known to be another, or another version; None without one."""
        try:
            status = os.lstat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size

    def _data(self) -> bytes:
        """What is in the file; RequestError for what is no small plain file.

        Neither a link is followed nor a pipe waited for, also one that took the file's place a moment ago.
        """
        if not stat.S_ISREG(os.lstat(self.path).st_mode):
            raise RequestError("it is no plain file")
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise RequestError("it is no plain file")
            data = os.read(fd, MOST_BYTES + 1)
        finally:
            os.close(fd)
        if len(data) > MOST_BYTES:
            raise RequestError(f"it has more than {MOST_BYTES} bytes")
        return data


def send(directory: Path, changes: Mapping[str, object], *, source: str) -> ControlRequest:
    """Write a request for the training that writes in a directory; whole, or not at all.

    RequestError for what the training would refuse, RunDirectoryError where the file cannot be written.
    """
    content = {**changes, "timestamp": time.time(), "source": source}
    request = parse_request(content, now=time.time())
    try:
        write_atomically(directory / CONTROL_JSON, orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise unwritable(directory / CONTROL_JSON, error) from error
    return request
