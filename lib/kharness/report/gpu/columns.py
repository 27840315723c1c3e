"""Columns of values over time, of any length in bounded memory: what they come to, and curves to draw.

Up to BLOCK rows are held as they are, and every number is exact. Of a longer recording each full block
becomes sums, a cell of a curve for each CELL rows, and counts of its values: means, deviations and peaks stay
those of all rows, percentiles are within PRECISION, and a curve's points stand for complete cells.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

# As many as a line in a picture can show.
MAX_POINTS = 160

# Two samples further apart than so many seconds, and than so many median distances, break a curve.
GAP_SECONDS = 5.0
GAP_INTERVALS = 3.0

# Rows held in memory: nine hours at one row per second.
BLOCK = 32768
CELL = 128

# Distinct values counted exactly; beyond it, as for noisy power, each is rounded.
MOST_VALUES = 8192
PRECISION = 2.0**-11
"""Relative precision of a rounded value."""

# Mean, peak and lowest of a point where nobody knows any.
_UNKNOWN = (math.nan, math.nan, math.nan)

Values = NDArray[np.float64]
_Point = tuple[float, float, float, float]
"""Seconds, mean, peak and lowest."""


@dataclass(frozen=True)
class GpuCurve:
    """A quantity over time: seconds since the run's first sample, NaN where nothing is known."""

    seconds: Sequence[float] = ()
    means: Sequence[float] = ()
    peaks: Sequence[float] = ()
    lows: Sequence[float] = ()

    def __bool__(self) -> bool:
        return any(not math.isnan(value) for value in self.means)


@dataclass(frozen=True)
class GpuSpread:
    """One number over all samples that have it."""

    n: int
    mean: float
    std: float
    """Population standard deviation over time."""
    peak: float
    low: float
    """Below it are 5 % of the samples."""
    high: float
    """Above it are 5 %."""


class LongColumns:
    """Some quantities of one thing, sampled together; NaN is not known."""

    def __init__(self, names: Iterable[str]) -> None:
        self.num_rows = 0
        self._names = tuple(names)
        self._rows = array("d")  # the time and a value of each, one row after the other: one call per sample
        self._most = BLOCK * (1 + len(self._names))
        self._cells: _Cells | None = None
        self._counted = {name: _Counted() for name in self._names}

    def add(self, times: Sequence[float], row: Sequence[float]) -> None:
        """The same values at each of some times, which are those of no row before."""
        self.num_rows += len(times)
        for time in times:
            self._rows.extend((time, *row))
        if len(self._rows) >= self._most:
            self._fold()

    def curves(self, started: float) -> dict[str, GpuCurve]:
        """Return the curves of columns with any value; `started` is second 0."""
        if self._cells is None:
            times, held = self._columns()
            found = {name: _curve(times, values, started) for name, values in held.items()}
        else:
            self._fold()
            found = {name: self._cells.curve(name, started) for name in self._names}
        return {name: curve for name, curve in found.items() if curve}

    def spreads(self) -> dict[str, GpuSpread]:
        """Return the spreads of columns with any value."""
        if self._cells is None:
            found = {name: _spread(_known(values)) for name, values in self._columns()[1].items()}
        else:
            self._fold()
            found = {name: counted.spread() for name, counted in self._counted.items()}
        return {name: spread for name, spread in found.items() if spread is not None}

    def _columns(self) -> tuple[Values, dict[str, Values]]:
        """The times and the values of the rows that are held."""
        times, *values = np.array(self._rows).reshape(-1, 1 + len(self._names)).T.copy()
        return times, dict(zip(self._names, values, strict=True))

    def _fold(self) -> None:
        """Keep of the rows that are held what they come to."""
        if not self._rows:
            return
        times, held = self._columns()
        if self._cells is None:
            self._cells = _Cells(held, longest=_longest_distance(np.diff(times)))
        self._cells.add(times, held)
        for name, values in held.items():
            self._counted[name].add(_known(values))
        self._rows = array("d")


class _Cells:
    """A recording in cells of CELL rows, fewer before a gap."""

    def __init__(self, names: Iterable[str], *, longest: float) -> None:
        """`longest` is the most seconds between two rows of one cell."""
        self._longest = longest
        self._last = math.nan
        self._firsts, self._rows, self._seconds = array("d"), array("d"), array("d")
        self._follows_gap = array("b")
        self._known = {name: array("d") for name in names}
        self._sums = {name: array("d") for name in names}
        self._peaks = {name: array("d") for name in names}
        self._lows = {name: array("d") for name in names}

    def add(self, times: Values, held: dict[str, Values]) -> None:
        distances = np.diff(times, prepend=self._last)
        self._last = float(times[-1])
        gaps = distances > self._longest  # none before the first row, whose distance is NaN
        bounds = [0, *np.flatnonzero(gaps).tolist(), len(times)]
        starts = [start for at, end in pairwise(bounds) for start in range(at, end, CELL)]
        self._firsts.extend(times[starts])
        self._follows_gap.extend(gaps[starts].tolist())
        self._rows.extend(np.diff(starts, append=len(times)))
        self._seconds.extend(np.add.reduceat(times, starts))
        for name, values in held.items():
            lacking = np.isnan(values)
            self._known[name].extend(np.add.reduceat(~lacking, starts, dtype=np.float64))
            self._sums[name].extend(np.add.reduceat(np.where(lacking, 0.0, values), starts))
            self._peaks[name].extend(np.fmax.reduceat(values, starts))
            self._lows[name].extend(np.fmin.reduceat(values, starts))

    def curve(self, name: str, started: float) -> GpuCurve:
        size = sum(self._rows) / MAX_POINTS
        found: list[_Point] = []
        for group in self._groups(size):
            first = group[0]
            if self._follows_gap[first]:
                found.append((self._firsts[first] - started, *_UNKNOWN))
            rows, known = sum(self._rows[i] for i in group), sum(self._known[name][i] for i in group)
            mean = sum(self._sums[name][i] for i in group) / known if known else math.nan
            peaks = [peak for i in group if not math.isnan(peak := self._peaks[name][i])]
            lows = [low for i in group if not math.isnan(low := self._lows[name][i])]
            seconds = sum(self._seconds[i] for i in group) / rows - started
            found.append((seconds, mean, max(peaks, default=math.nan), min(lows, default=math.nan)))
        return GpuCurve(*zip(*found, strict=True))

    def _groups(self, size: float) -> Iterator[list[int]]:
        """Cells that become one point of at least `size` rows, except before a gap."""
        group: list[int] = []
        rows = 0.0
        for i in range(len(self._rows)):
            if group and (rows >= size or self._follows_gap[i]):
                yield group
                group, rows = [], 0.0
            group.append(i)
            rows += self._rows[i]
        if group:
            yield group


class _Counted:
    """How often each value of a column came."""

    def __init__(self) -> None:
        self._n, self._mean, self._squares = 0, 0.0, 0.0
        self._values: Values = np.empty(0)
        self._counts: Values = np.empty(0)

    def add(self, known: Values) -> None:
        if not len(known):
            return
        # Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances
        mean, n = float(known.mean()), self._n + len(known)
        by = mean - self._mean
        self._squares += float(((known - mean) ** 2).sum()) + by * by * self._n * len(known) / n
        self._mean += by * len(known) / n
        self._n = n
        self._count(*np.unique(known, return_counts=True))
        # The peak is set apart, since the maximum is reported exactly.
        if len(self._values) > MOST_VALUES:
            peak = self._values[-1]
            fractions, exponents = np.frexp(self._values[:-1])
            rounded = np.ldexp(np.round(fractions / PRECISION) * PRECISION, exponents)
            counts, self._counts = self._counts[:-1], self._counts[-1:]
            self._values = np.array([peak])
            self._count(np.minimum(rounded, peak), counts)

    def _count(self, values: Values, counts: Any) -> None:
        weights = np.concatenate([self._counts, counts])
        self._values, places = np.unique(np.concatenate([self._values, values]), return_inverse=True)
        self._counts = np.bincount(places, weights=weights).astype(np.float64)

    def spread(self) -> GpuSpread | None:
        if not self._n:
            return None
        upto = np.cumsum(self._counts)
        low, high = (self._values[np.searchsorted(upto, share * self._n)] for share in (0.05, 0.95))
        std = math.sqrt(self._squares / self._n)
        return GpuSpread(self._n, self._mean, std, float(self._values[-1]), float(low), float(high))


def _known(values: Values) -> Values:
    return values[~np.isnan(values)]


def _spread(known: Values) -> GpuSpread | None:
    if not len(known):
        return None
    low, high = np.percentile(known, (5, 95))
    return GpuSpread(
        n=len(known),
        mean=float(known.mean()),
        std=float(known.std()),
        peak=float(known.max()),
        low=float(low),
        high=float(high),
    )


def _longest_distance(distances: Values) -> float:
    """Seconds that two samples of one line may be apart."""
    median = float(np.median(distances)) if len(distances) else 0.0
    return max(GAP_SECONDS, GAP_INTERVALS * median)


def _curve(times: Values, values: Values, started: float) -> GpuCurve:
    """Average so many samples that MAX_POINTS are left; broken where sampling paused."""
    seconds = times - started
    size = max(1, math.ceil(len(values) / MAX_POINTS))
    distances = np.diff(seconds)
    breaks = np.flatnonzero(distances > _longest_distance(distances)) + 1
    found: list[_Point] = []
    for i, part in enumerate(np.split(np.arange(len(values)), breaks)):
        if i:  # the line ends before a gap and begins after it
            found.append((float(seconds[part[0]]), *_UNKNOWN))
        for start in range(0, len(part), size):
            own = part[start : start + size]
            known = _known(values[own])
            at, values_at = float(seconds[own].mean()), _UNKNOWN
            if len(known):
                values_at = float(known.mean()), float(known.max()), float(known.min())
            found.append((at, *values_at))
    return GpuCurve(*zip(*found, strict=True))
