"""Metrics over training steps as curves, of each run and the mean of complete ones; and their axes."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from kharness.report.metrics import of_split
from kharness.report.runs import RunData, Series
from kharness.report.series_store import NumberStore, stored
from kharness.report.summary import Summary

Kind = Literal["linear", "log", "log error"]

SCALE_WORDS: Mapping[Kind, str] = {"linear": "", "log": "log scale", "log error": "log scale of the error"}
"""Words of an axis on its scale."""

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
    of_validations: bool = False
    """Whether each point is a dot, and one value; a point of a metric of steps may stand for several."""
    field: str = ""
    """Name in the records; empty for one that is computed."""

    def curves(self, summary: Summary) -> tuple[Sequence[Curve], int]:
        """Return the curve of every run by variant, then their mean, and of how many steps a point is."""
        key = (self.read, self.factor, self.of_validations)
        if key not in summary.drawn:
            size = 1 if self.of_validations else bin_size(summary, self.read)
            summary.drawn[key] = _curves(summary, self.read, self.factor, size), size
        found: tuple[Sequence[Curve], int] = summary.drawn[key]
        return found


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
    """`mean`, `run`, `unfinished`, `other` for what is compared with, `limit`, `point` and `point beaten`."""
    xs: Sequence[float]
    ys: Sequence[float]
    """NaN is a gap."""
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()
    dots: bool = False
    titles: Sequence[str] = ()
    """The text of each point, where points stand alone."""
    turn: tuple[int, int] = (0, 1)
    """Which of how many equal lines it is."""


SIZE = 1000
"""Units of a frame in each direction; a path of whole numbers is short, and finer than any screen."""

_ERRORS = (90.0, 70.0, 50.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, in its own values."""

    kind: Kind
    low: float
    high: float

    def at(self, value: float) -> int:
        """Return the place of a value, 0 at the low end; a value beyond an end stands on it."""
        return round(SIZE * self.share(value))

    def share(self, value: float) -> float:
        """Return the same as a share of the axis."""
        # On a scale of the error 100 itself stands at a distance from 100.
        floor = max(100 - self.high, 1e-3)
        low, high, this = (_along(self.kind, one, floor) for one in (self.low, self.high, value))
        share = (this - low) / (high - low) if high > low else 0.5
        return min(max(share, 0.0), 1.0) if share == share else share

    def ticks(self, most: int = 6) -> Sequence[tuple[float, str]]:
        """Return places in percent from the low end, with the values in words."""
        values = self._values(most)
        step = min((b - a for a, b in itertools.pairwise(values)), default=1.0)
        digits = max(0, -math.floor(math.log10(step) + 1e-9)) if self.kind == "linear" and step > 0 else None
        return [(self.at(value) / (SIZE / 100), _words(value, digits)) for value in values]

    def _values(self, most: int) -> list[float]:
        if self.kind == "log error":
            shown = [100 - one for one in _ERRORS if self.low <= 100 - one <= self.high]
            return shown[:: -(-len(shown) // most) or 1]
        if self.kind == "log":
            for factors in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
                found = _decades(self.low, self.high, factors)
                if len(found) <= most:
                    return found if len(found) > 1 else [self.low, self.high]
            return found[:: -(-len(found) // most)]
        return _round_values(self.low, self.high, most)


def scale_of(values: Sequence[float], asked: Kind = "linear") -> Scale:
    """Return a scale that holds these values with a margin: of logarithms only where they span a decade."""
    low, high = min(values), max(values)
    if asked == "log" and low > 0 and high > 10 * low:
        margin = (high / low) ** 0.04
        return Scale("log", low / margin, high * margin)
    if asked == "log error" and high <= 100 and 100 - low > 10 * (100 - high):
        nearest = min((100 - one for one in values if one < 100), default=1.0)
        return Scale(
            "log error",
            max(0.0, 100 - 1.25 * (100 - low)),
            100 - 0.8 * (nearest if high < 100 else nearest / 2),
        )
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return Scale("linear", low - margin, high + margin)


def _along(kind: Kind, value: float, floor: float) -> float:
    if kind == "log":
        return math.log10(max(value, 1e-300))
    if kind == "log error":
        return -math.log10(max(100 - value, floor))
    return value


def _decades(low: float, high: float, factors: Sequence[float]) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    return [value for value in values if low <= value <= high]


def _round_values(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    return [one * step for one in range(first, math.floor(high / step) + 1)]


def _words(value: float, digits: int | None) -> str:
    if digits is None:
        return f"{value:g}"
    if abs(value) >= 100_000 and value % 1000 == 0:
        return f"{value / 1000:,.0f}k"
    text = f"{value:,.{min(digits, 9)}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text


def bin_size(summary: Summary, read: Callable[[RunData], Series]) -> int:
    """Return the number of steps per drawn point, the same for all runs."""
    longest = max((series.steps[-1] for cell in summary.cells if (series := read(cell.run))), default=0)
    return max(1, math.ceil(longest / MAX_POINTS))


def _curves(summary: Summary, read: Callable[[RunData], Series], scale: float, size: int) -> list[Curve]:
    found, store = [], NumberStore()
    for variant in summary.variants:
        runs = [(cell, _binned(read(cell.run), scale, size)) for cell in variant.cells]
        runs = [(cell, bins) for cell, bins in runs if bins]
        for cell, bins in runs:
            found.append(_curve(variant.label, cell.name, cell.run.complete, 1, bins, store))
        complete = [bins for cell, bins in runs if cell.run.complete]
        if complete:
            # Only where every run has a point: a mean must not jump because a run has ended.
            shared = set(complete[0]).intersection(*complete[1:])
            mean = {key: _mean([bins[key] for bins in complete]) for key in sorted(shared)}
            found.append(_curve(variant.label, "", True, len(complete), mean, store))
    return found


def _binned(series: Series, scale: float, size: int) -> dict[int, Bin]:
    """Number of the bin -> its point; a last bin that is less than half full joins the one before."""
    import numpy as np

    steps, values = np.frombuffer(series.steps, dtype=np.int64), np.frombuffer(series.values)
    # steps are counted from 1, so that the first bin has as many as the others
    keys, bins, counts = np.unique((steps - 1) // size, return_inverse=True, return_counts=True)
    if len(keys) > 1 and 2 * counts[-1] < counts[-2]:
        bins[bins == len(keys) - 1] -= 1
        keys, counts = keys[:-1], np.bincount(bins)
    lows, highs = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
    np.minimum.at(lows, bins, values)
    np.maximum.at(highs, bins, values)
    means = [np.bincount(bins, weights) / counts for weights in (steps, values)]
    columns = (means[0], means[1] * scale, lows * scale, highs * scale)
    points = map(Bin, *(column.tolist() for column in columns))
    return dict(zip(keys.tolist(), points, strict=True))


def _mean(bins: Sequence[Bin]) -> Bin:
    """The point of several runs."""
    value = math.fsum(one.value for one in bins) / len(bins)
    return Bin(bins[0].step, value, min(one.low for one in bins), max(one.high for one in bins))


def _curve(
    variant: str, run: str, complete: bool, num_runs: int, bins: dict[int, Bin], store: NumberStore
) -> Curve:
    columns = [array("d", one) for one in zip(*bins.values(), strict=True)]
    return Curve(variant, run, complete, num_runs, *(stored(store, one) for one in columns))


def recorded(
    name: str,
    title: str,
    field: str,
    factor: float = 1.0,
    kind: Kind = "linear",
    *,
    of_validations: bool = False,
) -> PlottedMetric:
    """Return the metric with the values that the records have in a field."""

    def read(run: RunData) -> Series:
        return run.validation(field) if of_validations else run.metric("step", field)

    return PlottedMetric(name, title, read, factor, kind, of_validations, field)


TRAINING_LOSS = recorded("training_loss", "Training loss", "train_loss", kind="log")
VALIDATION_LOSS = recorded("validation_loss", "Validation loss", "val_loss", kind="log", of_validations=True)
VALIDATION_ACCURACY = recorded(
    "validation_accuracy", "Validation accuracy (%)", "val_accuracy", 100, "log error", of_validations=True
)


def deciding(summary: Summary) -> list[PlottedMetric]:
    """Return what decides, as far as the above do not show it: `val_acc` of a script of anybody's.

    Of a metric of the test set it is the same one of the validations.
    """
    shown = {metric.field for metric in (TRAINING_LOSS, VALIDATION_LOSS, VALIDATION_ACCURACY)}
    found: dict[str, PlottedMetric] = {}
    for metric, _ in summary.conclusions.metrics.values():
        parts = of_split(metric.name.removeprefix("best_"))
        name = parts.on("val") if parts.split else parts.what
        runs = [cell.run for cell in summary.cells]
        if name not in shown and not metric.is_cost:
            is_validation = any(run.validation(name) for run in runs)
            if is_validation or any(run.metric("step", name) for run in runs):
                found[name] = _plotted(name, is_validation)
    return [*found.values()]


@cache
def _plotted(name: str, is_validation: bool) -> PlottedMetric:
    words = name.replace("_", " ")
    title = words[:1].upper() + words[1:]
    kind: Kind = "log" if "loss" in name else "linear"
    return recorded(f"deciding_{name}", title, name, kind=kind, of_validations=is_validation)
