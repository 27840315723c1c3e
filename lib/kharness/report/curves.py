"""Metrics over training steps as curves: one for each run, and the mean of a variant's complete runs."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kharness.report.runs import RunData, Series
from kharness.report.summary import Summary

Kind = Literal["linear", "log", "log error"]

SCALE_WORDS: Mapping[Kind, str] = {"linear": "", "log": "log scale", "log error": "log scale of the error"}
"""What an axis says of its scale."""

# As many points as a line of this width can show.
MAX_POINTS = 100


@dataclass(frozen=True)
class PlottedMetric:
    """A metric that is drawn over steps, by the page and as a graph."""

    name: str
    """The name of the graph with the same numbers, where there is one."""
    title: str
    read: Callable[[RunData], Series]
    factor: float = 1.0
    kind: Kind = "linear"
    """Scale of the y axis where the values call for it."""
    dots: bool = False
    binned: bool = True

    def curves(self, summary: Summary) -> tuple[Sequence[Curve], int]:
        """Return the curve of every run by variant, then their mean, and of how many steps a point is."""
        size = bin_size(summary, self.read) if self.binned else 1
        key = (self.read, self.factor, size)
        if key not in summary.drawn:
            summary.drawn[key] = _curves(summary, self.read, self.factor, size)
        found: Sequence[Curve] = summary.drawn[key]
        return found, size


@dataclass(frozen=True)
class Curve:
    """A line of the graph; the mean of a variant has no run."""

    variant: str
    run: str
    complete: bool
    num_runs: int
    steps: Sequence[float]
    values: Sequence[float]
    lows: Sequence[float] = ()
    """Lowest value of the steps that a point stands for, `highs` the highest; of a mean those of its runs."""
    highs: Sequence[float] = ()


class Bin(NamedTuple):
    """Some steps in a row, as a point of a curve."""

    step: float
    """Their mean."""
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Strand:
    """One line, its area, or both; `color` is its number in the page's palette."""

    label: str
    color: int
    kind: str
    """`mean`, `run`, `unfinished`, `points` for dots alone, or `other` for what is only compared with."""
    xs: Sequence[float]
    ys: Sequence[float]
    """NaN is a gap."""
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()
    dots: bool = False


def bin_size(summary: Summary, read: Callable[[RunData], Series]) -> int:
    """Return the number of steps per drawn point, the same for all runs."""
    longest = max((series.steps[-1] for cell in summary.cells if (series := read(cell.run))), default=0)
    return max(1, math.ceil(longest / MAX_POINTS))


def _curves(summary: Summary, read: Callable[[RunData], Series], scale: float, size: int) -> list[Curve]:
    found = []
    for variant in summary.variants:
        runs = [(cell, _binned(read(cell.run), scale, size)) for cell in variant.cells]
        runs = [(cell, bins) for cell, bins in runs if bins]
        for cell, bins in runs:
            found.append(_curve(variant.label, cell.name, cell.run.complete, 1, bins))
        complete = [bins for cell, bins in runs if cell.run.complete]
        if complete:
            # Only where every run has a point: a mean must not jump because a run has ended.
            shared = set(complete[0]).intersection(*complete[1:])
            mean = {key: _mean([bins[key] for bins in complete]) for key in sorted(shared)}
            found.append(_curve(variant.label, "", True, len(complete), mean))
    return found


def _binned(series: Series, scale: float, size: int) -> dict[int, Bin]:
    """Number of the bin -> its point; a last bin that is less than half full joins the one before."""
    import numpy as np

    steps, values = np.frombuffer(series.steps, dtype=np.int64), np.frombuffer(series.values)
    keys, bins, counts = np.unique((steps - 1) // size, return_inverse=True, return_counts=True)
    if len(keys) > 1 and 2 * counts[-1] < counts[-2]:
        bins[bins == len(keys) - 1] -= 1
        keys, counts = keys[:-1], np.bincount(bins)
    lows, highs = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
    np.minimum.at(lows, bins, values)
    np.maximum.at(highs, bins, values)
    means = [np.bincount(bins, weights) / counts for weights in (steps, values)]
    columns = (means[0], means[1] * scale, lows * scale, highs * scale)
    return dict(zip(keys.tolist(), map(Bin, *(column.tolist() for column in columns)), strict=True))


def _mean(bins: Sequence[Bin]) -> Bin:
    """The point of several runs."""
    value = math.fsum(one.value for one in bins) / len(bins)
    return Bin(bins[0].step, value, min(one.low for one in bins), max(one.high for one in bins))


def _curve(variant: str, run: str, complete: bool, num_runs: int, bins: dict[int, Bin]) -> Curve:
    return Curve(
        variant, run, complete, num_runs, *(array("d", one) for one in zip(*bins.values(), strict=True))
    )


def training_loss(run: RunData) -> Series:
    """The loss of each step."""
    return run.metric("step", "train_loss")


def validation_loss(run: RunData) -> Series:
    """The loss of each validation."""
    return run.validation("val_loss")


def validation_accuracy(run: RunData) -> Series:
    """The accuracy of each validation, as a fraction."""
    return run.validation("val_accuracy")


TRAINING_LOSS = PlottedMetric("training_loss", "Training loss", training_loss, kind="log")
VALIDATION_LOSS = PlottedMetric(
    "validation_loss", "Validation loss", validation_loss, kind="log", dots=True, binned=False
)
VALIDATION_ACCURACY = PlottedMetric(
    "validation_accuracy", "Validation accuracy (%)", validation_accuracy, 100, "log error", True, False
)
