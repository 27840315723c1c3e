"""metrics.csv: the journal as one wide table, for spreadsheets and data frames.

One row per record. The columns are the envelope, then texts and points (see records.points) in the order of
their first appearance; a cell is empty where the record has no such value. A line break in a text
is written as backslash and n, so that a row is always one line.
"""

from __future__ import annotations

import csv
import functools
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path

import orjson

from monitoring.follower import RunInfo
from monitoring.journal.atomic_file import replacing
from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.files import JOURNAL, METRICS_CSV
from monitoring.journal.records import MEASURING, MOST_FIELDS, Fields, Record, alike, points, seq_of
from monitoring.no_options import NoOptions

LEADING = ("seq", "attempt", "event", "time", "global_step")
INTEGERS = ("seq", "attempt", "global_step")

Options = NoOptions


def open_follower(run: RunInfo, options: Options) -> CsvFile:
    """Return the run's metrics.csv, made if it is not there; OSError if it cannot be written."""
    return CsvFile(run.directory / METRICS_CSV)


class CsvFile:
    """A table to which rows are appended; for a new column, which is seldom, it is rewritten."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._columns, self._last_seq = self._resume()
        except BaseException:
            os.close(self._fd)
            raise

    def last_seq(self, journal: str = JOURNAL) -> int:
        """Return the first cell of the last complete row."""
        return self._last_seq

    def deliver(self, records: Sequence[Record]) -> None:
        """Append one row per record; OSError leaves at most a torn row, which the next opening cuts."""
        parts = list(alike(records))
        firsts: dict[Fields, Record] = {}
        for fields, group in parts:
            firsts.setdefault(fields, group[0])
        names = dict.fromkeys(name for record in firsts.values() for name in row(record))
        known = set(self._columns)
        if not known.issuperset(names):
            self._add_columns([name for name in names if name not in known])
        self._append(b"".join(self._encoded(*part) for part in parts))
        self._last_seq = seq_of(records[-1])

    def flush(self) -> None:
        """Do nothing: deliver has already passed the rows to the kernel."""

    def close(self, status: str | None) -> None:
        os.close(self._fd)

    def _encoded(self, fields: Fields, group: Sequence[Record]) -> bytes:
        """Return the rows of records with the same fields."""
        rows = _csv_rows(fields, self._columns)
        if rows is None or any(whole_step(record["global_step"]) is None for record in group):
            return _lines([cells.get(name) for name in self._columns] for cells in map(row, group))
        numbers = list(chain.from_iterable(map(rows.numbers, group)))
        return rows.line * len(group) % tuple(shown(numbers))

    def _resume(self) -> tuple[tuple[str, ...], int]:
        """Cut a torn last row; return the columns and the last row's seq, ((), 0) for a new file."""
        with self._path.open("rb") as file:
            header = file.readline()
            if not header.endswith(b"\n"):
                os.ftruncate(self._fd, 0)
                return (), 0
            last, end = b"", file.tell()
            for line in file:
                if line.endswith(b"\n"):
                    last, end = line, end + len(line)
        # a kill in the middle of a write leaves a torn row, whose record is delivered again
        os.ftruncate(self._fd, end)
        columns = tuple(next(csv.reader([header.decode()])))
        return columns, int(last.partition(b",")[0]) if last else 0

    def _add_columns(self, new: Sequence[str]) -> None:
        """Append the columns to the others, in a new file that takes the old one's place in one step."""
        # at the end: cells that are there keep their places, and old rows need commas only
        columns = (*(self._columns or LEADING), *(name for name in new if name not in LEADING))
        padding = b"," * (len(columns) - len(self._columns)) + b"\n"
        with self._path.open("rb") as old, replacing(self._path, durable=False) as file:
            old.readline()
            file.write(_lines([columns]))
            while rows := old.read(2**20):
                # each line end is that of a row: those within texts are escaped
                file.write(rows.replace(b"\n", padding))
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND)
        self._columns = columns

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            # a nearly full disk takes a part, and refuses the next write
            view = view[os.write(self._fd, view) :]


def row(record: Record) -> dict[str, object]:
    """Return the cells of a record by column: its envelope, its texts and its points."""
    cells = {name: record[name] for name in LEADING if record.get(name) is not None}
    cells.update((key, _one_line(value)) for key, value in record.items() if isinstance(value, str))
    cells.update(points(record))
    if "global_step" in cells:
        cells["global_step"] = whole_step(cells["global_step"])
    return {_one_line(key): value for key, value in cells.items()}


def shown(numbers: Sequence[object]) -> list[bytes]:
    """Numbers as the csv module writes them, which is with `repr`, in a fraction of its time; truth values
    as 1 and 0."""
    json = orjson.dumps(numbers)[1:-1].replace(b"true", b"1").replace(b"false", b"0")
    texts = json.split(b",")
    if b"e" in json or b"0.0000" in json:  # both write the shortest digits, but not all exponents alike
        for place, text in enumerate(texts):
            if b"e" in text or b"0.0000" in text:
                texts[place] = repr(numbers[place]).encode()
    return texts


@dataclass(frozen=True)
class _CsvRows:
    """The rows of records with the same fields."""

    numbers: Callable[[Record], tuple[float, ...]]
    """The cells that differ, in the order of the columns."""
    line: bytes
    """The row, with `%b` for each of them."""


@functools.lru_cache(maxsize=MOST_FIELDS)
def _csv_rows(fields: Fields, columns: tuple[str, ...]) -> _CsvRows | None:
    """Return the layout of the rows; None if they have further texts, or what only `row` can show."""
    kinds = fields.kinds
    texts = [name for name, kind in kinds.items() if issubclass(kind, str)]
    if fields.event not in MEASURING or not fields.names or texts != ["event"]:
        return None
    if any(kinds.get(name) is not int for name in INTEGERS) or kinds.get("time") not in (int, float):
        return None
    names = {_one_line(name): name for name in (*INTEGERS, "time", *fields.names)}
    cells = {"event": str(fields.event).encode(), **dict.fromkeys(names, b"%b")}
    line = b",".join(cells.get(column, b"") for column in columns) + b"\n"
    return _CsvRows(itemgetter(*(names[column] for column in columns if column in names)), line)


@functools.lru_cache(maxsize=4096)  # names are the same in record after record
def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()
