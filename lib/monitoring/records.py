"""Journal records: reading them, their points for trackers, and making any value fit for JSON.

A record is one JSON object a line. Every one has `event`, `time` (UTC epoch seconds), `seq` (from 1, rising
over all attempts) and `attempt` (from 1); docs/metrics.md lists the other fields.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import orjson

from monitoring.gpu_aggregates import gpu_points

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


def mark_nonfinite(record: Record) -> None:
    """Note in the record which of its values JSON cannot hold because they are NaN or infinite."""
    names = [key for key, value in record.items() if value is not None and _has_nonfinite(value)]
    if names:
        record["nonfinite"] = names
        record["nan_inf_detected"] = True


def plain(record: Record) -> Record:
    """A copy with a JSON form for every value; what has none is null and listed in `unserializable`."""
    result: Record = {}
    lost: list[str] = []
    for key, value in record.items():
        try:
            orjson.dumps(value, option=JSON_LINE)
            result[key] = value
        except TypeError:
            result[key] = _json_form(value)
            if result[key] is None:
                lost.append(key)
    if lost:
        result["unserializable"] = lost
    return result


def _has_nonfinite(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if value is None or isinstance(value, (int, str)):
        return False
    if isinstance(value, Mapping):
        return any(_has_nonfinite(item) for item in value.values())
    if isinstance(value, Sequence):
        return any(_has_nonfinite(item) for item in value)
    # a numpy scalar or array, told apart without importing numpy
    return b"null" in orjson.dumps(value, option=JSON_LINE)


def _json_form(value: object) -> object:
    """The JSON form of a value that orjson refuses, None if it has none."""
    if isinstance(value, str):  # lone surrogates, as in a file name that is not UTF-8
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, os.PathLike):
        return os.fsencode(value).decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {str(key): _json_form_of_part(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_form_of_part(item) for item in value]
    try:  # Decimal, Fraction, numbers of other packages, integers of more than 64 bits
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        return None


def _json_form_of_part(value: object) -> object:
    try:
        orjson.dumps(value, option=JSON_LINE)
        return value
    except TypeError:
        return _json_form(value)


def as_number(value: object) -> float | None:
    """A number as a float; None for anything else, also for a truth value."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
