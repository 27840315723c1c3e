"""A stretch of a metric in at most so many buckets, whose lowest and highest values are those of its records.

A bucket that is wide against a block is computed from blocks; the rows of a block that reaches over several
buckets, or over an edge of the window, are read again. So a spike is never lost, and a window of few records
is these records.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from monitoring.journal.series.rows import Rows
from monitoring.journal.series.table import BLOCK, BlockAxis, Levels, SeriesTable

Axis = Literal["steps", "times"]


def _doubles() -> array[float]:
    return array("d")


@dataclass
class Window:
    """Columns with a place per bucket, in the order of the journal; buckets without a record are left out."""

    x: array[float] = field(default_factory=_doubles)
    """Where the first record of each bucket is, and in `x_last` the last."""
    x_last: array[float] = field(default_factory=_doubles)
    min: array[float] = field(default_factory=_doubles)
    """Lowest finite value, as `max` the highest: NaN where no record of the bucket has one."""
    max: array[float] = field(default_factory=_doubles)
    last: array[float] = field(default_factory=_doubles)
    """Value of the last record, NaN where that is not finite."""
    count: array[int] = field(default_factory=lambda: array("q"))
    """Records in it, with those that are not finite."""
    nonfinite: array[int] = field(default_factory=lambda: array("q"))
    """Those of them that are NaN or infinite."""
    exact: bool = True
    """Whether every bucket is one record: its own x and value."""
    coarse: bool = False
    """Whether some of it is only sampled, because the journal is not read to its end yet."""

    def __len__(self) -> int:
        return len(self.x)

    def add(
        self, x: float, x_last: float, low: float, high: float, last: float, count: int, nonfinite: int
    ) -> None:
        """Begin a bucket."""
        self.x.append(x)
        self.x_last.append(x_last)
        self.min.append(low)
        self.max.append(high)
        self.last.append(last)
        self.count.append(count)
        self.nonfinite.append(nonfinite)

    def extend(self, axis: Sequence[float], values: Sequence[float]) -> None:
        """Add a bucket for each of some records."""
        for column, found in (
            *((self.x, axis), (self.x_last, axis)),
            *((self.min, values), (self.max, values), (self.last, values)),
        ):
            column.extend(array("d", found))
        self.count.extend(array("q", [1]) * len(axis))
        self.nonfinite.extend([value != value for value in values])

    def merge(self, x_last: float, low: float, high: float, last: float, count: int, nonfinite: int) -> None:
        """Add to the last bucket."""
        self.x_last[-1] = x_last
        # an empty bucket's lowest value is NaN, with which no comparison holds
        if not self.min[-1] <= low:
            self.min[-1] = low if low == low else self.min[-1]
        if not self.max[-1] >= high:
            self.max[-1] = high if high == high else self.max[-1]
        self.last[-1] = last
        self.count[-1] += count
        self.nonfinite[-1] += nonfinite


@dataclass(frozen=True)
class Stretch:
    """The requested part of an axis, in its units as journals have it (steps, or UTC epoch seconds)."""

    axis: Axis
    low: float
    high: float
    buckets: int
    zero: float = 0.0
    """Where the axis begins for a reader, from which a logarithm is taken."""
    log: bool = False
    until: float = math.inf
    """UTC epoch seconds: records that came later are left out."""


def window_of(table: SeriesTable, name: str, asked: Stretch) -> Window:
    """Return a stretch of a metric of one table."""
    span: BlockAxis = getattr(table, asked.axis)
    levels = table.levels.get(name, Levels())
    if span.is_rising and asked.until < math.inf:
        latest = asked.until if asked.axis == "times" else table.step_at(asked.until)
        asked = replace(asked, high=min(asked.high, latest))
    if span.is_rising:
        first, end = bisect_left(span.high, asked.low), bisect_right(span.low, asked.high)
        blocks: Sequence[int] = levels.blocks[
            bisect_left(levels.blocks, first) : bisect_left(levels.blocks, end)
        ]
    else:
        blocks = [
            block
            for block in levels.blocks
            if span.low[block] <= asked.high
            and span.high[block] >= asked.low
            and table.times.low[block] <= asked.until
        ]
    tails = [rows for rows in (table.rows, table.sample) if rows is not None and name in rows.columns]
    found = _Filling(table, name, asked, Window(coarse=table.sample is not None))
    places = _places(levels.blocks, blocks)
    num_tail = sum(found.count(rows) for rows in tails)
    # Whether each record has a bucket of its own. Counted no further than to a no: of a wide window that
    # takes a few blocks, and of a narrow one the blocks at its edges, which are then decoded already.
    num = num_tail
    for block, place in zip(blocks, places, strict=True):
        if num > asked.buckets:
            break
        inside = _is_inside(table, span, block, asked)
        num += levels.count[place] if inside else found.count(table.blocks(block, block + 1))
    if num <= asked.buckets:
        found.every = True
        found.read(blocks)
    elif span.is_rising:
        found.edges = _edges(asked, *_extent(asked, span, blocks, tails))
        _by_edges(found, levels, span, blocks)
    else:
        _in_order(found, levels, span, blocks, places, num_tail)
    for rows in tails:
        found.take(rows)
    found.window.exact &= all(count == 1 for count in found.window.count)
    return found.window


class _Filling:
    """A window that is being filled, in the order of the journal."""

    def __init__(self, table: SeriesTable, name: str, asked: Stretch, window: Window) -> None:
        self.window = window
        self.every = False
        """Whether each record is a bucket of its own."""
        self.edges: list[float] = []
        """The upper end of each bucket on a rising axis."""
        self.records_each = 1
        """How many records a bucket holds on an axis that does not rise."""
        self._table, self._name, self._asked = table, name, asked
        axis: BlockAxis = getattr(table, asked.axis)
        self._is_rising = axis.is_rising
        self._bucket = -1
        self._num = 0

    def count(self, rows: Rows) -> int:
        """How many rows are in the window."""
        return len(self._inside(rows)[0])

    def read(self, blocks: Sequence[int]) -> None:
        """Take the rows of some blocks, each as far as it is in the window."""
        for first, end in _stretches(blocks):
            self.take(self._table.blocks(first, end))

    def take(self, rows: Rows) -> None:
        """Take rows as far as they are in the window."""
        axis, values = self._inside(rows)
        first, window = 0, self.window
        if self.every:
            window.extend(axis, values)
            first = len(axis)
        while first < len(axis):
            end = self._end_of_bucket(axis, first)
            part = values[first:end]
            # NaN anywhere makes the sum NaN
            finite = part if not math.isnan(sum(part)) else [value for value in part if value == value]
            low, high = (min(finite), max(finite)) if finite else (math.nan, math.nan)
            found = (axis[end - 1], low, high, part[-1], len(part), len(part) - len(finite))
            bucket = self._bucket_of(axis[first])
            if bucket != self._bucket:
                window.add(axis[first], *found)
                self._bucket = bucket
            else:
                window.merge(*found)
            self._num += len(part)
            first = end

    def _inside(self, rows: Rows) -> tuple[Sequence[float], array[float]]:
        """Where the rows are that are in the window, and their values."""
        axis: Sequence[float] = rows.steps if self._asked.axis == "steps" else rows.times
        low, high = self._asked.low, self._asked.high
        places, values = rows.points(self._name)
        if len(places) != len(axis):
            axis = [axis[row] for row in places]
        if self._is_rising:
            inside = slice(bisect_left(axis, low), bisect_right(axis, high))
            return axis[inside], values[inside]
        times, until = rows.times, self._asked.until
        then = times if len(places) == len(times) else [times[row] for row in places]
        kept = [row for row, x in enumerate(axis) if low <= x <= high and then[row] <= until]
        return [axis[row] for row in kept], array("d", [values[row] for row in kept])

    def _end_of_bucket(self, axis: Sequence[float], first: int) -> int:
        """The place after the last row that is in the bucket of the first one."""
        if not self.edges:
            return min(len(axis), first + self.records_each - self._num % self.records_each)
        bucket = self._bucket_of(axis[first])
        if bucket == len(self.edges) - 1:
            return len(axis)
        return bisect_left(axis, self.edges[bucket], first)

    def summarize(self, levels: Levels, first: int, end: int, span: BlockAxis) -> None:
        """Take blocks by their places in the levels, all of them in one bucket."""
        if first >= end:
            return
        self.window.exact = False
        low, high = min(levels.low[first:end]), max(levels.high[first:end])
        finite = low <= high
        x, x_last = span.low[levels.blocks[first]], span.high[levels.blocks[end - 1]]
        count, nonfinite = sum(levels.count[first:end]), sum(levels.nonfinite[first:end])
        rest = (
            *(low if finite else math.nan, high if finite else math.nan),
            *(levels.last[end - 1], count, nonfinite),
        )
        bucket = self._bucket_of(x)
        if bucket != self._bucket:
            self.window.add(x, x_last, *rest)
            self._bucket = bucket
        else:
            self.window.merge(x_last, *rest)
        self._num += count

    def _bucket_of(self, x: float) -> int:
        # the last edge is the window's own end
        return (
            bisect_right(self.edges, x, 0, len(self.edges) - 1)
            if self.edges
            else self._num // self.records_each
        )


def _by_edges(found: _Filling, levels: Levels, span: BlockAxis, blocks: Sequence[int]) -> None:
    """Blocks on a rising axis: those of a bucket together, those that reach far beyond it row by row."""
    if not blocks:
        return
    asked, end = found._asked, blocks[-1] + 1
    first, low = blocks[0], -math.inf
    if span.low[first] < asked.low:
        found.read([first])
        first += 1
    wide: list[int] = []
    for edge in found.edges:
        if first >= end:
            break
        # the last bucket has its upper end too, every other one begins where the one before it ends
        after = end if edge == found.edges[-1] else bisect_left(span.low, edge, first, end)
        if after > first:
            last = after - 1
            # a block that reaches beyond the window, or over more than two buckets, is read
            reads = span.high[last] > asked.high or span.high[last] - span.low[last] > 2 * (edge - low)
            stop = last if reads else after
            if stop > first:
                found.read(wide)
                wide = []
                places = bisect_left(levels.blocks, first), bisect_left(levels.blocks, stop)
                found.summarize(levels, *places, span)
            if reads and _has(levels, last):
                wide.append(last)
            first = after
        low = edge
    found.read(wide)


def _in_order(
    found: _Filling,
    levels: Levels,
    span: BlockAxis,
    blocks: Sequence[int],
    places: Sequence[int],
    num_tail: int,
) -> None:
    """Blocks on an axis that goes back: as many records to each bucket, in the order of the journal."""
    asked = found._asked
    total = sum(levels.count[place] for place in places) + num_tail
    # The x of such an axis says nothing about the order, so that buckets are made by number of records.
    found.records_each = max(1, math.ceil(total / asked.buckets))
    for block, place in zip(blocks, places, strict=True):
        if _is_inside(found._table, span, block, asked) and found.records_each >= BLOCK:
            found.summarize(levels, place, place + 1, span)
        else:
            found.read([block])


def _is_inside(table: SeriesTable, span: BlockAxis, block: int, asked: Stretch) -> bool:
    """Whether all rows of a block are in the window."""
    is_then = span.is_rising or table.times.high[block] <= asked.until
    return asked.low <= span.low[block] and span.high[block] <= asked.high and is_then


def _extent(
    asked: Stretch, span: BlockAxis, blocks: Sequence[int], tails: Sequence[Rows]
) -> tuple[float, float]:
    """The least and the greatest x that the window can hold."""
    ends = [span.low[blocks[0]], span.high[blocks[-1]]] if blocks else []
    for rows in filter(len, tails):
        axis = rows.steps if asked.axis == "steps" else rows.times
        ends += [axis[0], axis[-1]]
    return max(asked.low, min(ends, default=0.0)), min(asked.high, max(ends, default=0.0))


def _edges(asked: Stretch, low: float, high: float) -> list[float]:
    """Return the upper ends of buckets of equal width on the axis, or on its logarithm."""
    num = asked.buckets
    if asked.log and high > asked.zero:
        # a logarithm needs a begin above zero: the first step, or a millionth of the run's time
        least = max(low - asked.zero, 1.0 if asked.axis == "steps" else (high - asked.zero) * 1e-6)
        factor = (high - asked.zero) / least
        if factor > 1:
            return [asked.zero + least * factor ** ((k + 1) / num) for k in range(num)]
    return [low + (high - low) * (k + 1) / num for k in range(num)]


def _places(numbers: Sequence[int], chosen: Sequence[int]) -> Sequence[int]:
    """Return where some blocks stand among those that have a metric."""
    # Numbers without a gap stand without one: nearly always, and without a search for each.
    if chosen and chosen[-1] - chosen[0] == len(chosen) - 1:
        first = bisect_left(numbers, chosen[0])
        return range(first, first + len(chosen))
    return [bisect_left(numbers, block) for block in chosen]


def _has(levels: Levels, block: int) -> bool:
    place = bisect_left(levels.blocks, block)
    return place < len(levels.blocks) and levels.blocks[place] == block


def _stretches(blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Blocks that follow one another as first and end."""
    first = before = -1
    for block in blocks:
        if block != before + 1 or first < 0:
            if first >= 0:
                yield first, before + 1
            first = block
        before = block
    if first >= 0:
        yield first, before + 1
