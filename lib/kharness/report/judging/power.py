"""What a comparison would find, by the rule that verdicts follow: its power, and the least difference shown.

A difference is found where the mean of the seeds is beyond what its interval needs to leave out zero. How
wide that is varies from matrix to matrix: with the deviation that the seeds happen to show, and with what
the tests beforehand make of it. So it is not taken from a formula: tables of normal numbers are judged by
the same code as the runs are, and the power is a mean over them. The mean of the seeds is independent of
these widths, and its part is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kharness.report.judging.blocks import POOLED, Contrast, among_all_pairs, contrasts
from kharness.report.judging.images import just_shown
from kharness.report.judging.statistics import (
    POWER,
    crossing,
    estimated_deviations,
    largest_range,
    largest_t,
    normal_below,
    t_quantile,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SIMULATED_SEEDS = 24
"""With more, tables are not simulated: what the tests beforehand cost is little then."""

_TABLES = 40, 500
"""That are simulated of one size, at least and at most."""

_NUMBERS = 24_000
"""In all of them, where that is between the two."""

_WIDTHS, _DEVIATIONS = 100, 25
"""Quantiles that stand for a distribution."""

_MIDDLES = (np.arange(_WIDTHS) + 0.5) / _WIDTHS


@dataclass(frozen=True)
class Rule:
    """How wide the intervals of comparisons are, by the seeds alone, at any number of seeds."""

    together: int
    """Comparisons that hold at once by one error."""
    share: float
    """Of the chance to be wrong that the table has, spent by those."""
    correlation: float
    degrees: float
    """Of freedom of the error, with `seeds`."""
    seeds: int
    pooled: bool
    """Whether the tests beforehand may take another error, with other seeds."""
    own_level: float
    """Of the test by a comparison's own pairs that guards it."""
    variants: int = 0
    """All pairs of so many hold at once; 0 where the baseline was planned."""

    @classmethod
    def of(cls, contrast: Contrast, own_level: float) -> Rule:
        """The rule that has judged this one."""
        pooled = contrast.method in POOLED
        return cls(
            together=contrast.together,
            share=contrast.share,
            correlation=contrast.correlation,
            degrees=contrast.degrees,
            seeds=contrast.pairs,
            pooled=pooled,
            own_level=own_level,
            variants=contrast.variants,
        )

    def reach(self, degrees: float, alpha: float) -> float:
        """Standard errors in a half width, if the table has this alpha."""
        if self.variants:
            return largest_range(self.variants, degrees, alpha * self.share)
        return largest_t(self.together, degrees, alpha * self.share, correlation=self.correlation)

    @lru_cache(maxsize=1024)  # noqa: B019 - rules are few and small
    def half_widths(self, seeds: int, alpha: float) -> Numbers:
        """Quantiles over matrices, in deviations of a pair's difference, if the table has this alpha."""
        if self.pooled and seeds <= SIMULATED_SEEDS and self.together > 1:
            comparisons = self.variants - 1 if self.variants else self.together
            return _half_widths_of_tables(
                comparisons, seeds, alpha * self.share, self.own_level, chosen=bool(self.variants)
            )
        degrees = self.degrees * (seeds - 1) / (self.seeds - 1)
        widths = self.reach(degrees, alpha) * estimated_deviations(degrees, _WIDTHS)
        if self.degrees > self.seeds - 1:
            own = _guard(seeds, self.own_level) * estimated_deviations(seeds - 1, _WIDTHS)
            widths = np.maximum(widths[:, None], own[None, :])
        return np.quantile(widths, _MIDDLES) / math.sqrt(seeds)


def half_width(contrast: Contrast, alpha: float, own_level: float) -> float:
    """Of the interval of a difference, by the seeds alone, if the table has this alpha."""
    reach = Rule.of(contrast, own_level).reach(contrast.degrees, alpha)
    return max(reach * contrast.standard_error, guard(contrast, own_level))


def guard(contrast: Contrast, own_level: float) -> float:
    """What half a width is at least.

    Whatever a shared error says, what its own pairs do not show by themselves is not shown: the variant may
    vary more than tests before the test can tell.
    """
    return _guard(contrast.pairs, own_level) * contrast.own_standard_error


def _guard(pairs: int, own_level: float) -> float:
    return t_quantile(pairs - 1, 1 - own_level)


@lru_cache(maxsize=256)
def _half_widths_of_tables(
    comparisons: int, seeds: int, alpha: float, own_level: float, *, chosen: bool
) -> Numbers:
    """Of tables whose variants vary alike; where pairs are chosen after looking, all pairs hold at once."""
    rng = np.random.default_rng([comparisons, seeds])
    shape = comparisons + 1, seeds
    tables = max(_TABLES[0], min(_TABLES[1], _NUMBERS // (shape[0] * seeds)))
    found = [
        half_width(among_all_pairs(contrast, shape[0]) if chosen else contrast, alpha, own_level)
        for _ in range(tables)
        for contrast in contrasts(rng.normal(scale=math.sqrt(0.5), size=shape).tolist())
    ]
    return np.quantile(found, _MIDDLES)


@dataclass(frozen=True)
class Chances:
    """What decides whether other seeds find a difference on these images, in the metric's unit."""

    rule: Rule
    seeds: int
    alpha: float
    """Of the table, at this number of seeds."""
    deviation: float
    """Of a pair's difference."""
    degrees: float | None
    """Of freedom of that deviation's estimate; None where it is known."""
    weight: float
    """Of the images."""

    def power(self, size: float) -> float:
        """The probability that a true difference of this size is shown."""
        least, errors = self.bounds
        return float(normal_below((size - least) / errors).mean())

    @cached_property
    def bounds(self) -> tuple[Numbers, Numbers]:
        """The differences that are just shown, and the standard errors, over what the deviation may be."""
        spread = np.ones(1) if self.degrees is None else 1 / estimated_deviations(self.degrees, _DEVIATIONS)
        true = self.deviation * spread[:, None]
        half_widths = self.rule.half_widths(self.seeds, self.alpha)
        return just_shown(true * half_widths, self.weight), true / math.sqrt(self.seeds)


@lru_cache(maxsize=4096)
def smallest(chances: Chances) -> float:
    """The true difference on these images that is shown in POWER of all cases."""
    least, errors = chances.bounds
    highest = float((least + 4 * errors).max())
    return crossing(lambda size: chances.power(size) - POWER, 0.0, highest)
