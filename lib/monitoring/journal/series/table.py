"""All records of one kind in a journal, in little memory: blocks of old rows, and the newest as they are.

A block is BLOCK rows that follow one another. It keeps the lowest, the highest and the last value of each
metric, and where in the journal it begins: a chart that needs the rows themselves reads them there again.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from monitoring.journal.records import Record
from monitoring.journal.series.rows import Rows

# Rows of a block. Half of it means twice the memory, twice of it means twice the time that a zoom takes.
BLOCK = 32

# Cells (rows times metrics) that are held as they are, and rows at least; half of them is folded at a time.
MOST_CELLS = 131072
FEWEST_ROWS = 2048

# Stretches of blocks that stay decoded, for the charts that share a zoom.
KEPT = 8


Folded = tuple[list[int], list[float], list[float], list[float], list[int], list[int]]
"""The columns of Levels for some blocks: number, low, high, last, count and nonfinite."""


@dataclass
class Levels:
    """One metric in the blocks that have it, a place in each column per block."""

    blocks: array[int] = field(default_factory=lambda: array("I"))
    """Numbers of these blocks; they rise."""
    low: array[float] = field(default_factory=lambda: array("d"))
    """Lowest finite value, infinity without any; `high` is the highest, minus infinity without any."""
    high: array[float] = field(default_factory=lambda: array("d"))
    last: array[float] = field(default_factory=lambda: array("d"))
    count: array[int] = field(default_factory=lambda: array("B"))
    """Records of the block that have the metric, those where it is not finite too."""
    nonfinite: array[int] = field(default_factory=lambda: array("B"))
    num_records: int = 0
    lowest: float = math.inf
    highest: float = -math.inf
    num_nonfinite: int = 0

    def cut(self, block: int) -> None:
        """Keep the blocks before one."""
        keep = bisect_left(self.blocks, block)
        for column in (self.blocks, self.low, self.high, self.last, self.count, self.nonfinite):
            del column[keep:]
        self.num_records, self.num_nonfinite = sum(self.count), sum(self.nonfinite)
        self.lowest, self.highest = min(self.low, default=math.inf), max(self.high, default=-math.inf)

    def add(self, first: int, columns: Folded) -> None:
        """Append blocks from number `first` on: number, low, high, last, count and nonfinite of each."""
        blocks, low, high, last, count, nonfinite = columns
        self.blocks.extend([first + block for block in blocks])
        self.low.extend(low)
        self.high.extend(high)
        self.last.extend(last)
        self.count.extend(count)
        self.nonfinite.extend(nonfinite)
        self.num_records += sum(count)
        self.num_nonfinite += sum(nonfinite)
        self.lowest, self.highest = min([self.lowest, *low]), max([self.highest, *high])


@dataclass
class BlockAxis:
    """Where the blocks lie on an axis: the least and the greatest value of each."""

    low: array[float]
    high: array[float]
    is_rising: bool = True
    """Whether no row is before the one that was recorded before it."""


class Figures(NamedTuple):
    """Summary of the records of a metric."""

    num_records: int
    num_nonfinite: int
    low: float
    """Lowest finite value, infinity without any; `high` is the highest, minus infinity without any."""
    high: float
    last: float
    last_step: int


class SeriesTable:
    """One kind of record in one journal."""

    def __init__(
        self,
        read: Callable[[SeriesTable, int, int], Rows],
        *,
        names: Sequence[str] | None = None,
        whole: bool = False,
    ) -> None:
        """`read` returns the rows of the blocks from one number up to another from the journal again.

        `names`, if given, are all metrics that are taken; `whole` holds all rows, and makes no blocks.
        """
        self._whole = whole
        self.rows = Rows(names)
        """The newest rows."""
        self.sample: Rows | None = None
        """A few of the rows that are not read yet; None where all are."""
        self.levels: dict[str, Levels] = {}
        self.offsets = array("q")
        """Bytes of the journal before the first row of each block."""
        self.seqs = array("q")
        """`seq` of the first row of each block."""
        self.steps = BlockAxis(array("d"), array("d"))
        self.times = BlockAxis(array("d"), array("d"))
        self._read = read
        self._decoded: dict[tuple[int, int], Rows] = {}

    @property
    def num_blocks(self) -> int:
        return len(self.seqs)

    def __len__(self) -> int:
        return self.num_blocks * BLOCK + len(self.rows)

    @property
    def names(self) -> list[str]:
        """Every metric that a record has, or a sampled one."""
        sampled = self.sample.columns if self.sample is not None else ()
        return list(dict.fromkeys([*self.levels, *self.rows.columns, *sampled]))

    def append(self, records: Sequence[Record], steps: Sequence[int], offsets: Sequence[int]) -> None:
        """Append records, each with its step and with the bytes of the journal before it."""
        before = len(self.rows)
        self.rows.extend(records, steps, offsets)
        _note(self.steps, self.rows.steps, before)
        _note(self.times, self.rows.times, before)
        most = max(FEWEST_ROWS, MOST_CELLS // (1 + len(self.rows.columns)))
        if len(self.rows) > most and not self._whole:
            self._fold(max(1, (len(self.rows) - most // 2) // BLOCK))

    def read_to(self, offset: int | None) -> None:
        """Forget the sampled rows before so many bytes of the journal; all of them for None."""
        if self.sample is not None and offset is not None:
            self.sample.drop(bisect_left(self.sample.offsets, offset))
        else:
            self.sample = None

    def figures(self, name: str) -> Figures:
        """Summary of all records of a metric, as far as they are read, or sampled."""
        levels = self.levels.get(name, Levels())
        num, nonfinite = levels.num_records, levels.num_nonfinite
        low, high, last, last_step = levels.lowest, levels.highest, math.nan, 0
        if levels.blocks:
            last, last_step = levels.last[-1], int(self.steps.high[levels.blocks[-1]])
        for rows in (self.rows, self.sample):
            places, values = rows.points(name) if rows is not None else ((), array("d"))
            if rows is None or not places:
                continue
            finite = values if not math.isnan(sum(values)) else [it for it in values if it == it]
            low, high = min(low, min(finite, default=low)), max(high, max(finite, default=high))
            num, nonfinite = num + len(values), nonfinite + len(values) - len(finite)
            last, last_step = values[-1], rows.steps[places[-1]]
        return Figures(num, nonfinite, low, high, last, last_step)

    def value_at(self, name: str, time: float) -> float | None:
        """The last value of a metric up to a time, UTC epoch seconds; None before the first."""
        rising = self.times.is_rising
        for rows in (self.sample, self.rows):
            row = rows.row_before(time, name, is_rising=rising) if rows is not None else None
            if rows is not None and row is not None:
                return rows.column(name)[row]
        levels = self.levels.get(name, Levels())
        end = bisect_right(self.times.low, time) if rising else self.num_blocks
        for place in range(bisect_left(levels.blocks, end) - 1, -1, -1):
            block = levels.blocks[place]
            if self.times.high[block] <= time:
                return levels.last[place]
            if self.times.low[block] <= time:
                rows = self.blocks(block, block + 1)
                if (row := rows.row_before(time, name, is_rising=rising)) is not None:
                    return rows.column(name)[row]
        return None

    def step_at(self, time: float) -> float:
        """The step of the last row up to a time, UTC epoch seconds; minus infinity before the first."""
        rising = self.times.is_rising
        for rows in (self.sample, self.rows):
            row = rows.row_before(time, is_rising=rising) if rows is not None else None
            if rows is not None and row is not None:
                return rows.steps[row]
        end = bisect_right(self.times.low, time) if rising else self.num_blocks
        for block in range(end - 1, -1, -1):
            if self.times.low[block] <= time:
                rows = self.blocks(block, block + 1)
                if (row := rows.row_before(time, is_rising=rising)) is not None:
                    return rows.steps[row]
        return -math.inf

    def cut(self, seq: int) -> None:
        """Forget the records from a `seq` on: a later attempt does them again."""
        keep = bisect_left(self.rows.seqs, seq)
        self.rows.cut(keep)
        # the `seq` is among the newest rows, so that all blocks are before it
        if keep or not self.num_blocks:
            return
        first = bisect_left(self.seqs, seq)
        if first == 0:
            self._cut_blocks(0)
            return
        # the block that holds the `seq`, or ends right before it
        rows = self._read(self, first - 1, first)
        rows.cut(bisect_left(rows.seqs, seq))
        self._cut_blocks(first - 1)
        self.rows = rows

    def offset_from(self, seq: int) -> int | None:
        """Bytes of the journal before the first record from a `seq` on, or before its block; None without."""
        row = bisect_left(self.rows.seqs, seq)
        if row == 0 and self.num_blocks:
            return self.offsets[max(0, bisect_left(self.seqs, seq) - 1)]
        return self.rows.offsets[row] if row < len(self.rows) else None

    def blocks(self, first: int, end: int) -> Rows:
        """The rows of the blocks from one number up to another."""
        # taken out and put in again: a dict is in the order of insertion, so the first is the one not used
        # for longest
        found = self._decoded.pop((first, end), None)
        if found is None:
            found = self._read(self, first, end)
        self._decoded[first, end] = found
        while len(self._decoded) > KEPT:
            del self._decoded[next(iter(self._decoded))]
        return found

    def _cut_blocks(self, keep: int) -> None:
        self._decoded.clear()
        for span in (self.steps, self.times):
            del span.low[keep:], span.high[keep:]
        del self.offsets[keep:], self.seqs[keep:]
        for name in [*self.levels]:
            self.levels[name].cut(keep)
            if not self.levels[name].blocks:
                del self.levels[name]

    def _fold(self, num: int) -> None:
        """Turn so many blocks of the oldest rows into levels."""
        rows, size, before = self.rows, num * BLOCK, self.num_blocks
        for name in rows.columns:
            values = rows.column(name)[:size]
            lost = [row for row in rows.lost.get(name, ()) if row < size]
            columns = (
                _folded(values, num) if not lost and not math.isnan(sum(values)) else _looked_at(values, lost)
            )
            if columns[0]:
                self.levels.setdefault(name, Levels()).add(before, columns)
        for span, column in ((self.steps, rows.steps), (self.times, rows.times)):
            # the n-th rows of all blocks as a column each: `min` over 32 columns is that of every block,
            # without a loop over rows in Python
            parts = [column[place:size:BLOCK] for place in range(BLOCK)]
            span.low.extend(map(min, *parts))
            span.high.extend(map(max, *parts))
        self.offsets.extend(rows.offsets[:size:BLOCK])
        self.seqs.extend(rows.seqs[:size:BLOCK])
        rows.drop(size)
        # a metric that is recorded no more needs no column of NaN
        for name in [name for name, column in rows.columns.items() if not column and not rows.lost.get(name)]:
            del rows.columns[name]


def _folded(values: array[float], num: int) -> Folded:
    """The columns of Levels for blocks in which every record has a finite value."""
    parts = [values[place::BLOCK] for place in range(BLOCK)]
    low, high = list(map(min, *parts)), list(map(max, *parts))
    return list(range(num)), low, high, list(parts[-1]), [BLOCK] * num, [0] * num


def _looked_at(values: array[float], lost: list[int]) -> Folded:
    """The same, where some have none."""
    found: list[tuple[int, float, float, float, int, int]] = []
    in_lost = set(lost)
    for block in range(len(values) // BLOCK):
        first = block * BLOCK
        rows = [row for row in range(first, first + BLOCK) if values[row] == values[row] or row in in_lost]
        if rows:
            finite = [values[row] for row in rows if values[row] == values[row]]
            low, high = min(finite, default=math.inf), max(finite, default=-math.inf)
            found.append((block, low, high, values[rows[-1]], len(rows), len(rows) - len(finite)))
    blocks, lows, highs, lasts, counts, nonfinite = (
        map(list, zip(*found, strict=True)) if found else ([],) * 6
    )
    return blocks, lows, highs, lasts, counts, nonfinite


def _note(span: BlockAxis, column: array[int] | array[float], before: int) -> None:
    """Whether the rows still rise."""
    if span.is_rising:
        new = column[max(0, before - 1) :]
        # `new` begins with the row before the new ones; where that was folded, its block knows the highest
        span.is_rising = list(new) == sorted(new) and (before > 0 or not span.high or new[0] >= span.high[-1])
