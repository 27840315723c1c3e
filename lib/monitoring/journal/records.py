"""Journal records: reading them, and their points for trackers.

A record is one JSON object a line. Every one has `event`, `time` (UTC epoch seconds), `seq` (from 1, rising
over all attempts) and `attempt` (from 1); docs/metrics.md lists the other fields.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from monitoring.gpu.aggregates import gpu_points

Record = dict[str, object]

# Where a record stands, as opposed to what it measured. Callers of log_* cannot set these.
ENVELOPE = frozenset({"event", "time", "seq", "attempt", "global_step"})

# Records whose numbers are measurements; those of a start record describe the run, a gap's the journal.
MEASURING = frozenset({"step", "epoch", "eval", "checkpoint", "end"})

# How every line is encoded; numpy scalars are numbers like any other.
JSON_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


def read_records(path: Path, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """Yield each whole record from byte `offset` on, with the offset behind it.

    A torn last line is left for the next call; a journal that does not exist yet holds nothing. A line
    that is not a record (a disk that lost power) is passed over and shows as a hole in `seq`.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        yield from records_in(file, offset)


def records_in(file: BinaryIO, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """The same of an open file."""
    file.seek(offset)
    for line in file:
        if not line.endswith(b"\n"):
            return
        offset += len(line)
        record = parse(line)
        if record is not None:
            yield record, offset


def last_record(path: Path) -> Record | None:
    """The last whole record, None if there is none; reads the file's end only."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        return parse(last_line(file.fileno())[0])


def last_line(fd: int) -> tuple[bytes, int]:
    """The last whole line of a file and the offset behind it; (b"", 0) if it has none."""
    end = os.fstat(fd).st_size
    tail = b""
    while tail.count(b"\n") < 2 and len(tail) < end:
        size = min(end, max(65536, 2 * len(tail)))
        tail = os.pread(fd, size, end - size)
    whole = tail[: tail.rfind(b"\n") + 1]
    return whole[whole.rfind(b"\n", 0, -1) + 1 :], end - len(tail) + len(whole) if whole else 0


def parse(line: bytes) -> Record | None:
    """The record in one line, None if it holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def points(record: Record) -> dict[str, float]:
    """The measured numbers of a record, which are what every tracker and the CSV hold, no more and no less.

    Booleans count as 1 and 0; null, text, lists and mappings are no points; nor is the envelope (event, time,
    seq, attempt, global_step). Only step, epoch, eval, checkpoint and end records have points, and the gpu
    records of gpu_stats.jsonl, whose points are those of `gpu_aggregates.gpu_points`.
    """
    if record.get("event") == "gpu":
        return gpu_points(record)
    if record.get("event") not in MEASURING:
        return {}
    return {
        key: int(value) if isinstance(value, bool) else value
        for key, value in record.items()
        if isinstance(value, (int, float)) and key not in ENVELOPE
    }


def as_number(value: object) -> float | None:
    """A number as a float; None for anything else, also for a truth value."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
