"""Journal records: reading them, and their points for trackers.

A record is one JSON object per line. Every one has `event`, `time` (UTC epoch seconds), `seq` (from 1, rising
over all attempts) and `attempt` (from 1); docs/metrics.md lists the other fields.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from monitoring.journal.files import kind_and_host

Record = dict[str, object]

# Where a record stands, as opposed to what it measured. Callers of log_* cannot set these.
ENVELOPE = frozenset({"event", "time", "seq", "attempt", "global_step"})

# Records whose numbers are measurements; those of a start record describe the run, a gap's the journal.
MEASURING = frozenset({"step", "epoch", "eval", "checkpoint", "end"})

PICTURES = "pictures"
"""Field of a record that measures: name -> file, a PNG in the run directory, which trackers show."""

# Records whose numbers are points by their own names.
POINTED = MEASURING | {"system"}

# Sets of fields that are known at a time; a run has a handful.
MOST_FIELDS = 4096

# Bytes at the end of a file that are searched first for its last line: some thirty records.
LAST_BYTES = 16384

# How every line is encoded; numpy scalars are numbers like any other.
JSON_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


def read_records(path: Path, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """Yield each complete record from byte `offset` on, with the offset of its end.

    A torn last line is left for the next call; a journal that does not exist yet holds nothing. A line
    that is not a record (a disk that lost power) is skipped and shows as a hole in `seq`.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        yield from records_in(file, offset)


def records_in(file: BinaryIO, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """Yield the complete records of an open file, as read_records does."""
    file.seek(offset)
    for line in file:
        if not line.endswith(b"\n"):
            return
        offset += len(line)
        record = parse(line)
        if record is not None:
            yield record, offset


def parsed(lines: Sequence[bytes]) -> list[Record | None]:
    """Return the record in each line, None where one holds none."""
    try:
        records: list[Any] = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        # one of them is damaged: each by itself
        return [parse(line) for line in lines]
    # One look at all of them where they are what they should be, as they nearly always are.
    if set(map(type, records)) <= {dict} and {type(record.get("event", "")) for record in records} <= {str}:
        return records
    return [record if _is_record(record) else None for record in records]


def last_record(path: Path) -> Record | None:
    """Return the last complete record, None without any; reads the file's end only."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        return parse(last_line(file.fileno())[0])


def last_line(fd: int) -> tuple[bytes, int]:
    """Return the last complete line of a file and the offset of its end; (b"", 0) if it has none."""
    end = os.fstat(fd).st_size
    tail = b""
    # two line ends: that of the last complete line and that of the one before, where it begins
    while tail.count(b"\n") < 2 and len(tail) < end:
        size = min(end, max(LAST_BYTES, 2 * len(tail)))
        tail = os.pread(fd, size, end - size)
    whole = tail[: tail.rfind(b"\n") + 1]
    return whole[whole.rfind(b"\n", 0, -1) + 1 :], end - len(tail) + len(whole) if whole else 0


def parse(line: bytes) -> Record | None:
    """Return the record in one line, None if it holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if _is_record(record) else None


def _is_record(value: Any) -> bool:
    """Whether a value is an object whose `event` is text: readers tell records apart by it."""
    return isinstance(value, dict) and isinstance(value.get("event", ""), str)


class Fields:
    """The names and types that many records share, as most of a journal do.

    A sink prepares what it writes once per such object, and uses it for all of these records.
    """

    def __init__(self, event: object, kinds: Mapping[str, type], names: Iterable[str]) -> None:
        """`kinds` are the types of all fields, `names` are the points."""
        self.event = event
        self.kinds = kinds
        self.names = tuple(names)
        self.has_pictures = kinds.get(PICTURES) is dict and event in MEASURING
        """Whether trackers may have pictures to show of such records."""
        self._flags = [place for place, name in enumerate(self.names) if kinds.get(name) is bool]
        self._get = itemgetter(*self.names) if len(self.names) > 1 else None
        self._is_gpu = kind_of(event) == "gpu"

    def values_in(self, record: Record) -> list[float]:
        """Return the points of a record, in the order of `names`."""
        if self._is_gpu:
            return list(_gpu_points(record).values())
        values: list[Any] = list(self._get(record)) if self._get else [record[name] for name in self.names]
        for place in self._flags:
            values[place] = int(values[place])
        return values


def fields_of(record: Record) -> Fields:
    """Return the fields of a record: the same object for all that share them."""
    event = record.get("event")
    # with types: a field that is a number in one record may be null or text in the next
    key = (event, *record, *map(type, record.values()))
    if (kind := kind_of(event)) == "gpu":
        found = _gpu_points(record)
        return _fields((*key, *found), record, found)
    return _known.get(key) or _fields(key, record, _point_names(record) if kind in POINTED else ())


@functools.lru_cache(maxsize=MOST_FIELDS)
def kind_of(event: object) -> str:
    """Return `gpu` for `gpu` and for `gpu@HOST`, under which followers get another host's samples."""
    return kind_and_host(str(event))[0]


def alike(records: Iterable[Record]) -> Iterator[tuple[Fields, list[Record]]]:
    """Yield the records in their order, those together that follow one another with the same fields."""
    for fields, group in itertools.groupby(records, fields_of):
        yield fields, list(group)


def _fields(key: tuple[object, ...], record: Record, names: Iterable[str]) -> Fields:
    """Return one object per key, until there are too many to keep."""
    found = _known.get(key)
    if found is None:
        found = Fields(key[0], {name: type(value) for name, value in record.items()}, names)
        # a training that makes up ever new names must not fill the memory
        if len(_known) >= MOST_FIELDS:
            _known.clear()
        _known[key] = found
    return found


def _gpu_points(record: Record) -> dict[str, float]:
    from monitoring.gpu.aggregates import gpu_points  # a training writes none

    return gpu_points(record)


def _point_names(record: Record) -> list[str]:
    return [
        name for name, value in record.items() if isinstance(value, (int, float)) and name not in ENVELOPE
    ]


_known: dict[tuple[object, ...], Fields] = {}


def points(record: Record) -> dict[str, float]:
    """The measured numbers of a record, which are what every tracker and the CSV hold, no more and no less.

    Booleans count as 1 and 0; null, text, lists and mappings are no points; nor is the envelope (event, time,
    seq, attempt, global_step). Only step, epoch, eval, checkpoint and end records have points, and the gpu
    records of gpu_stats.jsonl, whose points are those of `gpu_aggregates.gpu_points`, and the records of
    system_stats.jsonl.
    """
    fields = fields_of(record)
    return dict(zip(fields.names, fields.values_in(record), strict=True))


def seq_of(record: Record) -> int:
    """Return a record's `seq`, 0 where it has none."""
    seq = record.get("seq")
    return seq if isinstance(seq, int) else 0


def attempt_of(record: Record) -> int:
    """Return a record's `attempt`, 0 where it has none."""
    attempt = record.get("attempt")
    return attempt if isinstance(attempt, int) else 0


def time_of(record: Record) -> float:
    """Return a record's `time`, 0 where it has none."""
    return as_number(record.get("time")) or 0.0


def as_number(value: object) -> float | None:
    """Return a number as a float; None for anything else, also for a truth value."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
