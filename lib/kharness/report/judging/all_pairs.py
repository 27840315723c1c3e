"""Find all pairs of variants that are shown to differ, simultaneously: the basis of Pareto fronts and ranks.

Every pair counts as selected after seeing results (`among_all_pairs`), because a front or a rank selects
among them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from kharness.report.judging.blocks import Outliers, among_all_pairs, contrasts, outliers_of_each, own_pairs
from kharness.report.judging.evidence import Spending
from kharness.report.judging.factorial import Cell
from kharness.report.judging.images import NO_IMAGES, Images, widened
from kharness.report.judging.interim_looks import FEWEST, Looks
from kharness.report.judging.power import guard_of, half_width
from kharness.report.settings import ReportSettings

Numbers = Mapping[str, float]
"""Numbers of one variant, by seed."""


@dataclass(frozen=True)
class AllPairs:
    """The pairs of variants shown to differ in one metric."""

    less: frozenset[tuple[str, str]]
    """(variant, other): the variant is shown to have less than the other."""
    judged: frozenset[str]
    """Variants with a number on every seed of a look; nothing is shown about the others."""

    def rank_range(self, variant: str, number: int, *, higher_is_better: bool = False) -> tuple[int, int]:
        """Return the range of ranks the variant may truly have among `number`, simultaneously for all
        variants.
        """
        below, above = (counts[variant] for counts in self._counts)
        better, worse = (below, above) if higher_is_better else (above, below)
        return 1 + better, number - worse

    @cached_property
    def _counts(self) -> tuple[Counter[str], Counter[str]]:
        """In how many of the pairs each variant has less, and more."""
        return Counter(one for one, _ in self.less), Counter(other for _, other in self.less)


NOTHING = AllPairs(frozenset(), frozenset())


def all_pairs(
    numbers: Mapping[str, Numbers],
    seeds: Sequence[str],
    settings: ReportSettings,
    *,
    part: float = 1.0,
    images: Images = NO_IMAGES,
    cells: Mapping[str, Cell] = MappingProxyType({}),
) -> AllPairs:
    """Return the pairs shown to differ, from each variant's numbers on the planned seeds; incomplete variants
    are not judged.

    `part` is the share of the error that these pairs may spend, `cells` are the variants' levels on the axes
    of the matrix.
    """
    first = settings.planned_first(seeds) or len(seeds)
    looks = Looks(settings.seeds_planned, fixed=True) if settings.seeds_planned else Looks(first)
    look = looks.reached(len(seeds))
    if look is None or look < FEWEST:
        return NOTHING
    used = seeds[:look]
    rows = {
        name: [found[seed] for seed in used] for name, found in numbers.items() if found.keys() >= {*used}
    }
    if len(rows) < 2:
        return AllPairs(frozenset(), frozenset(rows))
    size, names = len(numbers), list(rows)
    share, once = looks.share(look), looks.share(looks.first)
    spending = Spending(1 - settings.confidence, part, look, {look: share}, once)
    weight = images.weight(spending.of_images(spending.alpha, math.comb(size, 2)))
    less = set()
    table = np.array([*rows.values()], dtype=float)
    outliers: Sequence[Outliers] = ()
    for i, name in enumerate(names):
        means, variances = own_pairs(table, i)
        # Of many variants most pairs end here: a half width is never less than the guard, and takes longer.
        least = guard_of(look, spending.alpha) * np.sqrt(variances / look)
        beyond = np.flatnonzero((means < 0) & (-means > least)).tolist()
        if not beyond:  # the other way round some may be below
            continue
        if not outliers:
            outliers = outliers_of_each(table)
        order = [i, *range(i), *range(i + 1, len(names))]
        levels = [cells[names[row]] for row in order] if cells else []
        wanted = [row - (row > i) for row in beyond]
        for row, contrast in zip(
            beyond, contrasts(table[order], levels, wanted=wanted, outliers=outliers[i]), strict=True
        ):
            if not (contrast.variance or weight):
                continue
            half = half_width(among_all_pairs(contrast, size), spending.at(look), spending.alpha)
            if -contrast.mean > widened(half, contrast.mean, weight):
                less.add((names[row], name))
    return AllPairs(frozenset(less), frozenset(rows))
