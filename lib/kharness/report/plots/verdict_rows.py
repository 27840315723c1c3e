"""The picture of the verdicts as rows that a page draws: a bar per comparison, in percent of the axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from kharness.report.judging.conclusions import Conclusions
from kharness.report.judging.judgment import SHOWN, Comparison
from kharness.report.judging.sentences import difference_words, signed, unit_words
from kharness.report.metrics import Metric
from kharness.report.plots.rows import MarkedRow, PlotMark, RowPlot

MOST_ROWS = 8
"""Rows on the first screen; the table below has all."""


def verdict_picture(part: Conclusions, most: int = MOST_ROWS) -> RowPlot | None:
    """Return at most so many rows of one deciding metric; None where no comparison has a difference."""
    known = [one for one in part.comparisons if one.difference is not None]
    if not known:
        return None
    rows = known
    if len(known) > most:
        first = sorted(known, key=lambda one: (one.verdict not in SHOWN, -abs(one.difference or 0.0)))
        kept = {id(one) for one in first[:most]}
        rows = [one for one in known if id(one) in kept]
    low, high = _axis_of(rows)
    largest = f"; the {len(rows)} largest of {len(known)}" if len(rows) < len(known) else ""
    return RowPlot(
        part.metric.title,
        _caption(part.metric, part.baseline) + largest,
        [_row(one, low, high) for one in rows],
        [(_percent(at, low, high), signed(at, part.metric)) for at in _ticks(low, high)],
    )


def _limit_of(rows: Sequence[Comparison]) -> float:
    """Return how far from zero intervals are drawn: to where all begin, as far as most need.

    One variant with two seeds may have an interval a hundred times as long as the others.
    """
    differences = [abs(one.difference or 0.0) for one in rows]
    ends = [max(abs(one.interval.low), abs(one.interval.high)) for one in rows if one.interval]
    # The interval of several looks may lie beyond the difference over all seeds.
    differences += [abs(one.interval.nearest_zero) for one in rows if one.interval]
    return max(1.15 * max(differences), 1.6 * statistics.median(ends) if ends else 0.0) or 1.0


def _axis_of(rows: Sequence[Comparison]) -> tuple[float, float]:
    """Return both ends of an axis: zero, differences, intervals up to the limit, and a margin."""
    limit = _limit_of(rows)
    reached = [0.0, *(one.difference or 0.0 for one in rows)]
    for one in rows:
        if one.interval:
            reached += [max(one.interval.low, -limit), min(one.interval.high, limit)]
    beyond = 0.08 * (max(reached) - min(reached)) or 1.0
    return min(reached) - beyond, max(reached) + beyond


def _row(one: Comparison, low: float, high: float) -> MarkedRow:
    """Return zero, the interval, which may go on beyond the axis, and the difference; hollow without one."""
    marks, interval = [PlotMark("zero", _percent(0.0, low, high))], one.interval
    if interval is not None:
        begin, end = (
            _percent(max(interval.low, low), low, high),
            _percent(min(interval.high, high), low, high),
        )
        beyond = " beyond-left" * (interval.low < low) + " beyond-right" * (interval.high > high)
        marks.append(PlotMark(f"bar{beyond}", begin, round(end - begin, 2)))
    place = _percent(one.difference or 0.0, low, high)
    marks.append(PlotMark("dot hollow" if interval is None else "dot", place))
    return MarkedRow(one.variant, marks, difference_words(one, unit=False), one.verdict.value)


def _ticks(low: float, high: float) -> list[float]:
    """Zero, and on each side the largest of 1, 2, 5, 10, … that is inside and not beside zero."""
    found = [0.0]
    for end in (low, high):
        size = 0.95 * abs(end)
        if size > 0.2 * (high - low):
            power = 10.0 ** math.floor(math.log10(size))
            at = max(step * power for step in (1, 2, 5) if step * power <= size)
            found.append(math.copysign(at, end))
    return sorted(found)


def _percent(value: float, low: float, high: float) -> float:
    return round(100 * (value - low) / (high - low), 2)


def _caption(metric: Metric, baseline: str) -> str:
    unit = unit_words(metric)
    way = {True: "right is better", False: "left is better", None: ""}[metric.higher_is_better]
    text = f"difference from {baseline} in {metric.title}{f', in {unit}' if unit else ''}"
    return f"{text}; {way}" if way else text
