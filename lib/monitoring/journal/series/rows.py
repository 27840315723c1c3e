"""Records of one kind as columns: a row per record, and a column of doubles per metric."""

from __future__ import annotations

import contextlib
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.records import ENVELOPE, Record

_NUMBERS = {float, int, bool}


class Rows:
    """A stretch of records of one kind, as columns.

    A metric that a record does not have is NaN in its column, and so is one that was NaN or infinite, which
    `lost` tells apart.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        """`names`, if given, are all metrics that are taken."""
        self._names = names
        self.steps = array("q")
        self.times = array("d")
        """UTC epoch seconds."""
        self.seqs = array("q")
        self.offsets = array("q")
        """Bytes of the journal before each record."""
        self.columns: dict[str, array[float]] = {}
        self.lost: dict[str, list[int]] = {}
        """Metric -> the rows, rising, in which it was NaN or infinite."""

    def __len__(self) -> int:
        return len(self.steps)

    def extend(self, records: Sequence[Record], steps: Iterable[int], offsets: Iterable[int]) -> None:
        """Append records, each with its step and with the bytes of the journal before it."""
        row = len(self.steps)
        self.steps.extend(array("q", steps))
        self.offsets.extend(array("q", offsets))
        columns = _columns(records, self._names)
        self.seqs.extend(_whole(columns.pop("seq", None), len(records)))
        self.times.extend(_times(columns.pop("time", None), len(records), self.times[-1] if row else 0.0))
        for name, values in columns.items():
            if name in ENVELOPE:
                continue
            try:
                numbers = array("d", values)
            except TypeError:  # some are no numbers
                if _NUMBERS.isdisjoint(map(type, values)):
                    continue
                numbers = array("d", [it if type(it) in _NUMBERS else math.nan for it in values])
            self._column(name, row).extend(numbers)
        if any(columns.get("nonfinite", ())):
            self._lose(records, row)

    def _lose(self, records: Sequence[Record], row: int) -> None:
        """Note where a value was NaN or infinite, which is null in a journal."""
        for place, record in enumerate(records, row):
            for name in lost_names(record):
                self.lost.setdefault(name, []).append(place)
                self._column(name, 0)

    def _column(self, name: str, row: int) -> array[float]:
        """The column of a metric, filled up to a row: one that begins late or pauses has NaN in between."""
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = array("d")
        if len(column) < row:
            column.extend([math.nan] * (row - len(column)))
        return column

    def column(self, name: str) -> array[float]:
        """A column of full length; all NaN for a metric that no row has."""
        return self._column(name, len(self)) if name in self.columns else array("d", [math.nan] * len(self))

    def points(self, name: str) -> tuple[Sequence[int], array[float]]:
        """The rows that have a metric and its values there, NaN where it was not finite."""
        values, lost = self.column(name), self.lost.get(name)
        # NaN anywhere makes the sum NaN: one pass in C instead of a loop.
        if not lost and not math.isnan(sum(values)):
            return range(len(values)), values
        kept = set(lost or ())
        rows = array("q", [row for row, value in enumerate(values) if value == value or row in kept])
        return rows, array("d", [values[row] for row in rows])

    def _all(self) -> tuple[array[int] | array[float], ...]:
        return (self.steps, self.times, self.seqs, self.offsets, *self.columns.values())

    def finite(self, name: str) -> tuple[array[int], array[float]]:
        """The steps and values of a metric where it is a finite number.

        Metrics that every record has share their steps: a thousand runs fit into memory.
        """
        rows, values = self.points(name)
        if math.isnan(sum(values)):
            rows = array("q", [row for row, value in zip(rows, values, strict=True) if value == value])
            values = array("d", [value for value in values if value == value])
        if len(rows) == len(self):
            return self.steps, values
        return array("q", [self.steps[row] for row in rows]), values

    def cut(self, keep: int) -> None:
        """Keep the first rows only."""
        for column in self._all():
            del column[keep:]
        for rows in self.lost.values():
            del rows[bisect_left(rows, keep) :]

    def drop(self, first: int) -> None:
        """Forget so many rows at the beginning."""
        for column in self._all():
            del column[:first]
        for name, rows in self.lost.items():
            self.lost[name] = [row - first for row in rows if row >= first]

    def records(self) -> Iterator[Record]:
        """The rows as records: `time`, `seq`, `global_step`, and the numbers that they have."""
        columns = {name: self.column(name) for name in self.columns}
        for row, (step, time, seq) in enumerate(zip(self.steps, self.times, self.seqs, strict=True)):
            measured = {name: column[row] for name, column in columns.items() if column[row] == column[row]}
            yield {"time": time, "seq": seq, "global_step": step, **measured}

    def row_before(self, time: float, name: str | None = None, *, is_rising: bool) -> int | None:
        """The last row up to a time, that has a metric where one is named.

        `is_rising` if no time is before an earlier row's.
        """
        if name is not None and name not in self.columns:
            return None
        column = self.column(name) if name is not None else None
        lost = self.lost.get(name, ()) if name is not None else ()
        end = bisect_right(self.times, time) if is_rising else len(self)
        for row in range(end - 1, -1, -1):
            has_it = column is None or column[row] == column[row] or row in lost
            if self.times[row] <= time and has_it:
                return row
        return None


def lost_names(record: Record) -> list[str]:
    """The metrics of a record that were NaN or infinite, which are null in a journal."""
    names = record.get("nonfinite")
    found = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return [name for name in found if name not in ENVELOPE and record.get(name, "") is None]


def _columns(records: Sequence[Record], chosen: Sequence[str] | None) -> dict[str, Sequence[Any]]:
    """Name -> its value in each record, None where a record has none."""
    wanted = None if chosen is None else {"seq", "time", "nonfinite", *chosen}
    names = list(records[0]) if records else []
    # all have the same fields, as they nearly always do: two passes in C
    if len(names) > 1 and set(map(len, records)) == {len(names)}:
        with contextlib.suppress(KeyError):
            found = zip(names, zip(*map(itemgetter(*names), records), strict=True), strict=True)
            return {name: values for name, values in found if wanted is None or name in wanted}
    names = list(wanted or dict.fromkeys(chain.from_iterable(records)))
    return {name: [record.get(name) for record in records] for name in names}


def _whole(values: Sequence[Any] | None, num: int) -> array[int]:
    """Integers; 0 for what is none."""
    with contextlib.suppress(TypeError, OverflowError):
        return array("q", values if values is not None else [0] * num)
    return array("q", [whole_step(value) or 0 for value in values or ()])


def _times(values: Sequence[Any] | None, num: int, before: float) -> array[float]:
    """Times of records; a record without one has that of the record before."""
    with contextlib.suppress(TypeError):
        return array("d", values if values is not None else [before] * num)
    found = array("d")
    for value in values or [None] * num:
        before = value if type(value) in (float, int) else before
        found.append(before)
    return found
