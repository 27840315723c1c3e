"""Find all pairs of variants that are shown to differ, simultaneously: the basis of Pareto fronts and ranks.

Every pair counts as selected after seeing results (`among_all_pairs`), because a front or a rank selects
among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kharness.report.collection import Variant
from kharness.report.judging.blocks import Outliers, among_all_pairs, contrasts, outliers_of_each, own_pairs
from kharness.report.judging.evidence import Spending
from kharness.report.judging.factorial import Cell
from kharness.report.judging.images import NO_IMAGES, Images, widened
from kharness.report.judging.interim_looks import FEWEST, Looks
from kharness.report.judging.main_effects import pairs_of_levels
from kharness.report.judging.power import guard_of, half_width
from kharness.report.settings import ReportSettings


class Pairs:
    """Ordered pairs of names as a table of bits: half a million pairs of a thousand names take a megabyte."""

    def __init__(self, names: Sequence[str], table: NDArray[np.bool_] | None = None) -> None:
        """`table` has a row for each first name and a column for each second; without it there is no pair."""
        self._names = names
        self._place = {name: i for i, name in enumerate(names)}
        self.table = np.zeros((len(names), len(names)), dtype=bool) if table is None else table

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for one, row in zip(self._names, self.table, strict=True):
            for place in np.flatnonzero(row).tolist():
                yield one, self._names[place]

    def __len__(self) -> int:
        return int(np.count_nonzero(self.table))

    def add(self, ones: Iterable[str], other: str) -> None:
        """Add the pairs of each of these with one other."""
        self.table[[self._place[one] for one in ones], self._place[other]] = True

    def turned(self) -> Pairs:
        """Return the same pairs, the second name first."""
        return Pairs(self._names, self.table.T)

    def count_of(self, name: str) -> tuple[int, int]:
        """Return how many pairs have a name first, and second."""
        place = self._place.get(name)
        if place is None:
            return 0, 0
        return int(np.count_nonzero(self.table[place])), int(np.count_nonzero(self.table[:, place]))


@dataclass(frozen=True)
class AllPairs:
    """The pairs of variants shown to differ in one metric."""

    less: Pairs
    """(variant, other): the variant is shown to have less than the other."""
    judged: frozenset[str]
    """Variants with a number on every seed of the first look; nothing is shown about the others."""

    def rank_range(self, variant: str, number: int) -> tuple[int, int]:
        """Return the range of ranks, the least first, that the variant may truly have among `number`,
        simultaneously for all variants.
        """
        below, above = self.less.count_of(variant)
        return 1 + above, number - below


@dataclass(frozen=True)
class Chosen:
    """The family that a comparison was selected from after seeing results: every pair of variants of the same
    workload, and every pair of levels of an axis.
    """

    groups: Sequence[Sequence[Variant]]
    """Variants of each workload."""

    @property
    def pairs(self) -> int:
        return sum(math.comb(len(group), 2) for group in self.groups)

    @cached_property
    def family(self) -> int:
        """Number of comparisons that could have been selected."""
        return self.pairs + sum(pairs_of_levels(group) for group in self.groups)

    def group_of(self, variant: Variant) -> Sequence[Variant]:
        return next(group for group in self.groups if any(one.label == variant.label for one in group))


NOTHING = AllPairs(Pairs(()), frozenset())


def all_pairs(
    numbers: Mapping[str, Mapping[str, float]],
    seeds: Sequence[str],
    settings: ReportSettings,
    *,
    part: float = 1.0,
    images: Images = NO_IMAGES,
    cells: Mapping[str, Cell] = MappingProxyType({}),
) -> AllPairs:
    """Return the pairs shown to differ by the intersection of all looks' intervals so far; `numbers` are each
    variant's by seed.

    A variant takes part in the looks whose planned seeds it has.

    `part` is the share of the error that these pairs may spend, `cells` are the variants' levels on the axes
    of the matrix.
    """
    seeds = settings.in_order(seeds)
    first = settings.planned_first(seeds) or len(seeds)
    looks = Looks(settings.seeds_planned, fixed=True) if settings.seeds_planned else Looks(first)
    last = looks.reached(len(seeds))
    if last is None or last < FEWEST:
        return NOTHING
    tables = []
    for look in looks.up_to(last):
        used = seeds[:look]
        rows = {
            name: [found[seed] for seed in used] for name, found in numbers.items() if found.keys() >= {*used}
        }
        spending = Spending(1 - settings.confidence, part, look, looks.shares(look))
        tables.append(_Complete(rows, cells, len(numbers), spending, images))
    less = Pairs(tables[0].names)
    for name in tables[0].names:
        others = dict.fromkeys(other for table in tables for other in table.beyond(name))
        low, high = dict.fromkeys(others, -math.inf), dict.fromkeys(others, math.inf)
        # Intersection of all looks' intervals; a look that a pair has not reached leaves it as it is.
        for table in tables:
            for other, mean, half in table.differences(name, others):
                low[other], high[other] = max(low[other], mean - half), min(high[other], mean + half)
        # Where looks contradict each other nothing is shown.
        less.add([other for other in others if low[other] <= high[other] < 0], name)
    return AllPairs(less, frozenset(tables[0].names))


class _Complete:
    """The variants that have the seeds of a look."""

    def __init__(
        self,
        rows: Mapping[str, Sequence[float]],
        cells: Mapping[str, Cell],
        size: int,
        spending: Spending,
        images: Images,
    ) -> None:
        """`size` is the number of all variants."""
        self.names = list(rows)
        self._place = {name: i for i, name in enumerate(rows)}
        self._values = np.array([*rows.values()], dtype=float)
        self._levels = [cells[name] for name in rows] if cells else []
        self._size, self._spending, self._images = size, spending, images

    def beyond(self, name: str) -> list[str]:
        """Return the variants that may have less. Of many variants most are none, and take no more time."""
        if name not in self._place or len(self.names) < 2:
            return []
        means, variances = own_pairs(self._values, self._place[name])
        # A half width is never less than the guard.
        look = self._spending.look
        least = guard_of(look, self._spending.alpha) * np.sqrt(variances / look)
        return [self.names[row] for row in np.flatnonzero((means < 0) & (-means > least))]

    def differences(self, name: str, others: Iterable[str]) -> Iterator[tuple[str, float, float]]:
        """Yield the differences of other variants from this one, each with its half width."""
        i = self._place.get(name)
        wanted = [other for other in others if other in self._place]
        if i is None or not wanted:
            return
        # `contrasts` wants the baseline first, and counts the others without it: those behind it move up by
        # one
        order = [i, *range(i), *range(i + 1, len(self.names))]
        rows = [self._place[other] - (self._place[other] > i) for other in wanted]
        found = contrasts(
            self._values[order],
            [self._levels[row] for row in order] if self._levels else [],
            wanted=rows,
            outliers=self._outliers[i],
        )
        spending = self._spending
        for other, contrast in zip(wanted, found, strict=True):
            if contrast.variance or self._weight:
                chosen = among_all_pairs(contrast, self._size)
                half = half_width(chosen, spending.at(spending.look), spending.alpha)
                yield other, contrast.mean, widened(half, contrast.mean, self._weight)

    @cached_property
    def _weight(self) -> float:
        spending = self._spending
        return self._images.weight(spending.of_images(spending.alpha, math.comb(self._size, 2)))

    @cached_property
    def _outliers(self) -> Sequence[Outliers]:
        return outliers_of_each(self._values)
