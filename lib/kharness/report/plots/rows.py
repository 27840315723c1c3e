"""Rows on one axis as data and words: a dot, a bar or a line per number, in percent of the axis."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kharness.report.curves import SIZE, Scale

MOST_ROWS = 20
"""Rows of a picture of the page; a PNG has more, and its CSV all."""


@dataclass(frozen=True)
class PlotMark:
    """A dot, or a bar of some width, in percent of the axis; `look` is its CSS class."""

    look: str
    left: float
    width: float = 0.0


@dataclass(frozen=True)
class MarkedRow:
    """One variant: its marks, and its number in words."""

    name: str
    marks: Sequence[PlotMark]
    words: str
    verdict: str = ""
    """Verdict of a comparison, which decides the color of its marks; empty for other rows."""


@dataclass(frozen=True)
class RowPlot:
    """Rows on one axis that begins at zero."""

    title: str
    caption: str
    rows: Sequence[MarkedRow]
    ticks: Sequence[tuple[float, str]]
    quantity: str = ""
    """Label of the axis, where the title says something else."""
    legend: Sequence[tuple[str, int]] = ()
    """Texts with their colors."""


def bar(look: str, low: float, high: float, axis: Scale) -> PlotMark:
    """Return a bar from one value to another."""
    left = percent(low, axis)
    return PlotMark(look, left, round(percent(high, axis) - left, 1))


def run_dots(runs: Sequence[tuple[bool, float]], axis: Scale) -> list[PlotMark]:
    """Return a dot per run, by whether it is complete and its value; hollow if it is not."""
    return [PlotMark("point" if complete else "point hollow", percent(at, axis)) for complete, at in runs]


def mean_of_complete(runs: Sequence[tuple[bool, float]]) -> float:
    """Return the mean of the complete runs, or of all if none is complete."""
    return statistics.fmean([value for complete, value in runs if complete] or [value for _, value in runs])


def mean_row(
    name: str, runs: Sequence[tuple[bool, float]], axis: Scale, words: Callable[[float], str]
) -> MarkedRow:
    """Return a dot per run, and a bar to their mean."""
    mean = mean_of_complete(runs)
    return MarkedRow(name, [bar("thick", 0.0, mean, axis), *run_dots(runs, axis)], words(mean))


def percent(value: float, axis: Scale) -> float:
    """Return the place of a value in percent of its axis."""
    return axis.at(value) / (SIZE / 100)
