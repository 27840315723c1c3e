"""Error estimates for a factorial matrix, whose variants are the combinations of several axes (split plot).

Where an axis has little effect, its levels repeat the other axes' runs: runs of one seed move together, and
are not the independent runs that a pooled error counts. What the seed does differently at each level of an
axis is measured in a stratum of its own, as in a split-plot experiment: seed x axis for each axis, seed x
axis x axis for each pair, and so on. Each has its mean square, and strata that vary alike are pooled. A
comparison's error follows from those of the strata that it lies in; docs/statistics-formulas.md has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from kharness.report.judging.statistics import Numbers, largest_t, mean_square_p

Cell = tuple[str, ...]
"""Levels of a variant, one per axis."""

POOL_LEVEL = 0.25
"""Level of the test whether a stratum varies more than the pool (Bancroft 1964)."""

FEW_SEEDS = 5
"""With fewer seeds the test has little power, so its level is higher."""

POOL_LEVEL_OF_FEW = 0.5

UNSURE_LEVEL = 0.1
"""Level above which a stratum that is not pooled is only suspected of varying more than the pool."""

UNSURE_TIMES = 9
"""Times the pool's mean square that such a stratum has at most: chosen by simulation so that nothing more is
claimed falsely."""

NARROWER_LEVEL = 0.05
"""Familywise level, over the rows, at which the narrower of two errors is chosen."""

MISSING_LEVEL = 0.1
"""Level of the test per axis where combinations are missing; its consequence, errors from own pairs, costs
more."""

MISSING_LEVEL_OF_FEW = 0.25


@dataclass(frozen=True)
class _Stratum:
    axes: tuple[int, ...]
    square: float
    """Mean square, in units of the variance of one run."""
    degrees: float
    is_unsure: bool = False
    """Whether it is only suspected of varying more than the pool."""


@dataclass(frozen=True)
class SplitPlot:
    """A complete factorial table, decomposed into strata."""

    places: tuple[tuple[int, ...], ...]
    """Level of each row on every crossed axis."""
    pool: _Stratum
    """The strata that vary alike, among them the highest interaction."""
    apart: Sequence[_Stratum]
    """The strata that have an error of their own."""

    @property
    def alike(self) -> bool:
        """Whether nothing speaks against independent runs."""
        return not self.apart

    def error(self, weights: Sequence[float]) -> tuple[float, float]:
        """Return the variance of one seed's contrast (rows times weights, which add up to zero), and its
        degrees of freedom (Satterthwaite 1946).

        With few seeds a stratum has few degrees of freedom. One that is only suspected has its own mean
        square, or UNSURE_TIMES that of the pool with the pool's degrees: whichever makes the narrower
        interval.
        """
        grid = _on_grid(np.asarray(weights), self.places)
        parts = {axes: float((part**2).sum()) for axes, part in _parts(grid)}
        found = self._mixed(parts, self.apart)
        most = self.pool.square * UNSURE_TIMES
        bounded = [
            replace(one, square=most, degrees=self.pool.degrees) if one.is_unsure else one
            for one in self.apart
        ]
        return min(found, self._mixed(parts, bounded), key=self._half) if bounded != self.apart else found

    def _mixed(
        self, parts: Mapping[tuple[int, ...], float], apart: Sequence[_Stratum]
    ) -> tuple[float, float]:
        # The strata are orthogonal, so the variance of a contrast is the sum over strata of what it has of
        # each, times that mean square; what is in no stratum apart is in the pool.
        inside = sum(parts.values()) - sum(parts[one.axes] for one in apart)
        terms = [(parts[one.axes] * one.square, one.degrees) for one in apart]
        terms.append((inside * self.pool.square, self.pool.degrees))
        variance = math.fsum(term for term, _ in terms)
        if variance <= 0:
            return 0.0, self.pool.degrees
        # degrees of freedom of a sum of mean squares, by matching its first two moments (Satterthwaite 1946)
        return variance, variance**2 / math.fsum(term**2 / degrees for term, degrees in terms)

    def _half(self, error: tuple[float, float]) -> float:
        """Return half of an interval, but for a factor."""
        variance, degrees = error
        return math.sqrt(variance) * largest_t(1, degrees, NARROWER_LEVEL / len(self.places))

    def errors_of_rows(self) -> list[tuple[float, float]]:
        """Return `error` of each later row minus the first; it depends only on the axes in which the two
        differ.
        """
        found: dict[tuple[bool, ...], tuple[float, float]] = {}
        first, *others = self.places
        errors = []
        for row, place in enumerate(others, 1):
            differ = tuple(one != other for one, other in zip(place, first, strict=True))
            if differ not in found:
                found[differ] = self.error([(i == row) - float(i == 0) for i in range(len(self.places))])
            errors.append(found[differ])
        return errors


def crossed(cells: Sequence[Cell]) -> list[tuple[int, ...]]:
    """Return the crossed axes by index; axes whose combinations are incomplete are merged into one.

    An option that only some levels of another have (the sparsity of a pruning) makes one axis with it. Empty
    if fewer than two axes remain, or the cells are not each of their combinations once.
    """
    different = frozenset(cells)
    return list(_crossed(different)) if len(different) == len(cells) else []


@lru_cache(maxsize=64)
def _crossed(cells: frozenset[Cell]) -> tuple[tuple[int, ...], ...]:
    """Compute `crossed` once per table, whichever row is the baseline."""
    groups: list[tuple[int, ...]] = [
        (i,) for i in range(len(next(iter(cells)))) if len({cell[i] for cell in cells}) > 1
    ]

    def levels(axes: tuple[int, ...]) -> int:
        return len({tuple(cell[i] for i in axes) for cell in cells})

    # Merging can make a new incomplete pair, so this repeats until all remaining pairs are complete.
    while True:
        nested = next(
            (
                (first, second)
                for i, first in enumerate(groups)
                for second in groups[i + 1 :]
                if levels(first + second) < levels(first) * levels(second)
            ),
            None,
        )
        if nested is None:
            break
        merged = tuple(sorted(nested[0] + nested[1]))
        groups = [merged, *(group for group in groups if group not in nested)]
    complete = math.prod(map(levels, groups)) == len(cells)
    return tuple(sorted(groups)) if complete and len(groups) > 1 else ()


def split_plot(table: Numbers, cells: Sequence[Cell], rounding: float) -> SplitPlot | None:
    """Decompose a table (variants by seeds); None if it is no complete factorial of two axes or more.

    Mean squares up to `rounding` are none.
    """
    axes = crossed(cells)
    if not axes:
        return None
    places = _places(cells, axes)
    freedom = table.shape[1] - 1
    # Per row, so that only seed x axes strata remain: the means of the rows are the effects themselves.
    centered = table - table.mean(axis=1, keepdims=True)
    strata = [
        _stratum(of, part, freedom, rounding, places) for of, part in _parts(_on_grid(centered, places))
    ]
    level = POOL_LEVEL if table.shape[1] >= FEW_SEEDS else POOL_LEVEL_OF_FEW
    return SplitPlot(places, *_pooled(strata, level))


def moves_with_an_axis(table: Numbers, cells: Sequence[Cell]) -> bool:
    """Return whether runs that share the level of an axis move together, where combinations are missing.

    By the F test of seed x axis, adjusted for the other axes, against what all of them leave; False where
    they leave nothing.
    """
    # In one order of the rows, so that it is tested once per table, whichever row is the baseline.
    order = sorted(range(len(cells)), key=cells.__getitem__)
    if len({*cells}) < len(cells):
        # rows of one cell have no order of their own but by their numbers
        order.sort(key=lambda row: (cells[row], table[row].tolist()))
    # as bytes, for the cache: an array has no hash
    ordered = np.ascontiguousarray(table[order])
    return _moves_with_an_axis(ordered.tobytes(), len(order), tuple(cells[row] for row in order))


@lru_cache(maxsize=64)
def _moves_with_an_axis(numbers: bytes, rows: int, cells: tuple[Cell, ...]) -> bool:
    table = np.frombuffer(numbers).reshape(rows, -1)
    seeds = table.shape[1]
    centered = table - table.mean(axis=1, keepdims=True)
    columns = [
        np.array([[cell[i] == level for level in levels] for cell in cells], dtype=float)
        for i in range(len(cells[0]))
        if len(levels := dict.fromkeys(cell[i] for cell in cells)) > 1
    ]
    rest, rank = _left(centered, columns)
    # with one axis, or as many parameters as rows, nothing is left that could be an error
    if len(columns) < 2 or rank >= rows:
        return False
    level = MISSING_LEVEL if seeds >= FEW_SEEDS else MISSING_LEVEL_OF_FEW
    for i in range(len(columns)):
        without, rank_without = _left(centered, columns[:i] + columns[i + 1 :])
        degrees = (rank - rank_without) * (seeds - 1)
        if not degrees:
            continue
        p = mean_square_p((without - rest) / degrees, degrees, rest, (rows - rank) * (seeds - 1))
        if p < level:
            return True
    return False


def _left(values: Numbers, columns: Sequence[Numbers]) -> tuple[float, int]:
    """Return the residual sum of squares after fitting the columns and a constant, and their rank."""
    design = np.hstack([np.ones((len(values), 1)), *columns])
    basis, sizes, _ = np.linalg.svd(design, full_matrices=False)
    # By singular values, since columns of levels are linearly dependent (each axis adds up to the constant).
    basis = basis[:, sizes > 1e-9 * sizes[0]]
    return float(((values - basis @ (basis.T @ values)) ** 2).sum()), basis.shape[1]


def _places(cells: Sequence[Cell], axes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    found = []
    for axis in axes:
        of_cells = [tuple(cell[i] for i in axis) for cell in cells]
        order = {level: i for i, level in enumerate(dict.fromkeys(of_cells))}
        found.append([order[level] for level in of_cells])
    return tuple(zip(*found, strict=True))


def _on_grid(rows: Numbers, places: Sequence[tuple[int, ...]]) -> Numbers:
    """Return the rows on a grid: one leading dimension per axis, then the dimensions of a row."""
    shape = tuple(max(of_axis) + 1 for of_axis in zip(*places, strict=True))
    grid = np.zeros((*shape, *(rows.shape[1:] or (1,))))
    for place, row in zip(places, rows, strict=True):
        grid[place] = row
    return grid


def _parts(grid: Numbers) -> Iterator[tuple[tuple[int, ...], Numbers]]:
    """Yield each stratum's part, main effects first: differences along its axes, averaged over the others."""
    # Each axis halves every part so far into its mean along the axis and what is left of it: 2^axes parts,
    # orthogonal to one another, that add up to the grid.
    found: list[tuple[tuple[int, ...], Numbers]] = [((), grid)]
    for axis in range(grid.ndim - 1):
        halves = [(axes, part, part.mean(axis=axis, keepdims=True)) for axes, part in found]
        found = [(axes, np.broadcast_to(mean, part.shape)) for axes, part, mean in halves]
        found += [((*axes, axis), part - mean) for axes, part, mean in halves]
    # the first is the mean over all axes: what the seed does to every variant alike, which no comparison sees
    yield from sorted(found[1:], key=lambda one: (len(one[0]), one[0]))


def _stratum(
    axes: tuple[int, ...], part: Numbers, freedom: int, rounding: float, places: Sequence[tuple[int, ...]]
) -> _Stratum:
    # levels are counted from 0, so the highest is their number less one
    degrees = math.prod(max(place[axis] for place in places) for axis in axes) * freedom
    square = float((part**2).sum()) / degrees
    return _Stratum(axes, square if square > rounding else 0.0, degrees)


def _pooled(strata: Sequence[_Stratum], level: float) -> tuple[_Stratum, Sequence[_Stratum]]:
    """Pool strata from the highest interaction down, as long as they do not vary more than the pool so
    far.
    """
    # The highest interaction is the last, and always in the pool: nothing is below it that it could be tested
    # by.
    pool, apart = strata[-1], []
    for order in range(len(pool.axes) - 1, 0, -1):
        total, degrees = pool.square * pool.degrees, pool.degrees
        # All strata of one order are tested against the same pool, so that their order does not matter.
        for one in (one for one in strata if len(one.axes) == order):
            p = mean_square_p(one.square, one.degrees, pool.square * pool.degrees, pool.degrees)
            if p < level:
                apart.append(replace(one, is_unsure=p >= UNSURE_LEVEL))
            else:
                total, degrees = total + one.square * one.degrees, degrees + one.degrees
        pool = _Stratum(pool.axes, total / degrees, degrees)
    return pool, apart
