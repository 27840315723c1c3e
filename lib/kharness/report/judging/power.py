"""Statistical power of a comparison: the chance to show a difference, and the smallest one that is shown.

A difference is found where the mean of the seeds is beyond what its interval needs to leave out zero. How
wide that is varies from matrix to matrix: with the deviation that the seeds happen to show, and with what
the preliminary tests make of it. So it is not taken from a formula: tables of normal numbers are judged by
the same code as the runs are, and the power is a mean over them. The mean of the seeds is independent of
these widths, and its part is exact. Where several looks count, a difference is found if any of them finds
it, and the means and widths of all looks are drawn together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from kharness.report.judging.blocks import POOLED, Contrast, among_all_pairs, contrasts
from kharness.report.judging.images import just_shown
from kharness.report.judging.statistics import (
    POWER,
    Numbers,
    crossing,
    estimated_deviations,
    largest_range,
    largest_t,
    normal_at,
    normal_below,
    t_quantile,
)

SIMULATED_SEEDS = 24
"""Largest number of seeds whose tables are simulated; beyond it the preliminary tests cost little power."""

_TABLES = 40, 500
"""Least and largest number of tables simulated per size."""

_NUMBERS = 24_000
"""Simulated values in all tables together, where that falls between the two."""

_WIDTHS, _DEVIATIONS = 100, 25
"""Number of quantiles that represent a distribution."""

_MIDDLES = (np.arange(_WIDTHS) + 0.5) / _WIDTHS

_WALKS = 4096
"""Number of simulated series of looks."""


@dataclass(frozen=True)
class Rule:
    """Width of a comparison's interval due to the seeds alone, for any number of seeds."""

    together: int
    """Number of comparisons that hold simultaneously with one error."""
    share: float
    """Share of the table's error rate that those comparisons spend."""
    correlation: float
    degrees: float
    """Degrees of freedom of the error, with `seeds`."""
    seeds: int
    pooled: bool
    """Whether the preliminary tests may choose another error, with other seeds."""
    own_level: float
    """Level of the test by the comparison's own pairs that limits it."""
    variants: int = 0
    """Number of variants whose pairs all hold simultaneously; 0 where the baseline was planned."""

    @classmethod
    def of(cls, contrast: Contrast, own_level: float) -> Rule:
        """Return the rule by which this contrast was judged."""
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

    @lru_cache(maxsize=1024)  # noqa: B019 - rules are few and small
    def half_widths(self, seeds: int, alpha: float) -> Numbers:
        """Return quantiles over matrices of the half width, in deviations of a pair's difference, for this
        alpha.
        """
        if self.pooled and seeds <= SIMULATED_SEEDS and self.together > 1:
            comparisons = self.variants - 1 if self.variants else self.together
            return _half_widths_of_tables(
                comparisons, seeds, alpha * self.share, self.own_level, chosen=bool(self.variants)
            )
        # The degrees of every error here are (seeds - 1) times what the table's shape decides.
        degrees = self.degrees * (seeds - 1) / (self.seeds - 1)
        widths = _reach(self, degrees, alpha) * estimated_deviations(degrees, _WIDTHS)
        # A pooled error has more degrees of freedom than the own pairs, whose test then limits it (`guard`).
        if self.degrees > self.seeds - 1:
            own = guard_of(seeds, self.own_level) * estimated_deviations(seeds - 1, _WIDTHS)
            # each quantile of the one with each of the other, as if the two estimates were independent
            widths = np.maximum(widths[:, None], own[None, :])
        return np.quantile(widths, _MIDDLES) / math.sqrt(seeds)


def _reach(of: Rule | Contrast, degrees: float, alpha: float) -> float:
    """Return the half width in standard errors, for this alpha of the table."""
    if of.variants:
        return largest_range(of.variants, degrees, alpha * of.share)
    return largest_t(of.together, degrees, alpha * of.share, correlation=of.correlation)


def half_width(contrast: Contrast, alpha: float, own_level: float) -> float:
    """Return the half width of a difference's interval due to the seeds alone, for this alpha of the
    table.
    """
    reach = _reach(contrast, contrast.degrees, alpha)
    return max(reach * contrast.standard_error, guard(contrast, own_level))


def guard(contrast: Contrast, own_level: float) -> float:
    """Return the least half width of a comparison.

    Whatever a shared error says, what its own pairs do not show by themselves is not shown: the variant may
    vary more than tests before the test can tell.
    """
    return guard_of(contrast.pairs, own_level) * contrast.own_standard_error


def guard_of(pairs: int, own_level: float) -> float:
    """Return the guard in standard errors of a comparison's own pairs."""
    return t_quantile(pairs - 1, 1 - own_level)


@lru_cache(maxsize=256)
def _half_widths_of_tables(
    comparisons: int, seeds: int, alpha: float, own_level: float, *, chosen: bool
) -> Numbers:
    """Simulate tables whose variants vary alike; where pairs are selected afterwards, all pairs hold
    simultaneously.
    """
    # Seeded by the size, so that the same matrix always reports the same power.
    rng = np.random.default_rng([comparisons, seeds])
    shape = comparisons + 1, seeds
    tables = max(_TABLES[0], min(_TABLES[1], _NUMBERS // (shape[0] * seeds)))
    found = [
        half_width(among_all_pairs(contrast, shape[0]) if chosen else contrast, alpha, own_level)
        for _ in range(tables)
        # A difference of two runs then has variance 1, the unit of the quantiles.
        for contrast in contrasts(rng.normal(scale=math.sqrt(0.5), size=shape).tolist())
    ]
    return np.quantile(found, _MIDDLES)


@dataclass(frozen=True)
class Chances:
    """The parameters that decide whether other seeds show a difference on these images, in its unit."""

    rule: Rule
    seeds: int
    alpha: float
    """The table's alpha at this number of seeds."""
    deviation: float
    """Standard deviation of a pair's difference."""
    degrees: float | None
    """Degrees of freedom of that deviation's estimate; None where it is known."""
    weight: float
    """Weight of the images (`Images.weight`)."""
    earlier: tuple[tuple[int, float], ...] = ()
    """Earlier looks that count as well, each as its number of seeds and its alpha."""

    def power(self, size: float) -> float:
        """The probability that a true difference of this size is shown, at any of the looks."""
        if self.earlier:
            return self.powers(size)[-1]
        least, errors = self.bounds
        return float(normal_below((size - least) / errors).mean())

    def powers(self, size: float) -> list[float]:
        """The same by each of the looks, the earlier ones first."""
        found: list[float] = (self.just_found < size).mean(axis=1).tolist()
        return found

    @property
    def just_found(self) -> Numbers:
        """Return the true differences beyond which simulated seeds have shown them, by each of the looks."""
        if self.weight:
            return _just_found(self)
        # Where no images count they are so many deviations, whatever that is: the same for all comparisons.
        return self.deviation * _just_found(replace(self, deviation=1.0))

    @cached_property
    def bounds(self) -> tuple[Numbers, Numbers]:
        """Return the differences that are just shown, and the standard errors, over the possible
        deviations.
        """
        spread = np.ones(1) if self.degrees is None else 1 / estimated_deviations(self.degrees, _DEVIATIONS)
        true = self.deviation * spread[:, None]
        half_widths = self.rule.half_widths(self.seeds, self.alpha)
        return just_shown(true * half_widths, self.weight), true / math.sqrt(self.seeds)


@lru_cache(maxsize=4096)
def smallest(chances: Chances) -> float:
    """Return the true difference on these images that is shown with probability POWER, at any look."""
    if chances.earlier:
        return float(np.quantile(chances.just_found[-1], POWER))
    if not chances.weight and chances.deviation != 1.0:
        return chances.deviation * smallest(replace(chances, deviation=1.0))
    least, errors = chances.bounds
    # four standard errors above what is just shown nearly every mean is beyond it, far more than POWER
    highest = float((least + 4 * errors).max())
    return crossing(lambda size: chances.power(size) - POWER, 0.0, highest)


@lru_cache(maxsize=64)
def _just_found(of: Chances) -> Numbers:
    looks = (*of.earlier, (of.seeds, of.alpha))
    means, widths, deviations = _walks(tuple(seeds for seeds, _ in looks))
    # The true deviation is the estimate divided by what an estimate of 1 would have come to (chi).
    true = np.full(_WALKS, of.deviation)
    if of.degrees is not None:
        places = (deviations * _DEVIATIONS).astype(int)
        true /= estimated_deviations(of.degrees, _DEVIATIONS)[places]
    found = []
    for (seeds, alpha), mean, width in zip(looks, means, widths, strict=True):
        half_widths = of.rule.half_widths(seeds, alpha)[(width * _WIDTHS).astype(int)]
        # These seeds show a size where size + their mean error is at least what is just shown.
        found.append(just_shown(true * half_widths, of.weight) - true * mean / math.sqrt(seeds))
    # What one look has shown stays shown.
    return np.minimum.accumulate(found)


@lru_cache(maxsize=64)
def _walks(looks: tuple[int, ...]) -> tuple[Numbers, Numbers, Numbers]:
    """Draw series of these numbers of seeds: a later look has the seeds of the earlier ones.

    Returns, with a row per look and a column per series, the means of the seeds in standard errors and the
    places (0 to 1) in the distribution of half widths; then those of each series among the deviations.
    """
    number = len(looks)
    rng = np.random.default_rng(looks)  # so that the same matrix always reports the same power
    # Each draw has one value of each of as many equal parts (Latin hypercube; McKay, Beckman, Conover 1979).
    parts = np.tile((np.arange(_WALKS) + 0.5) / _WALKS, (2 * number + 1, 1))
    places = rng.permuted(parts, axis=1)
    seeds = np.array(looks, dtype=float)
    freedom = seeds - 1  # an estimate of the deviation has one degree less than it has seeds
    # Looks share seeds, so their means are sums of the same steps; so are, by their normal scores, their
    # widths.
    means = _sums(normal_at(places[:number]), seeds)
    return means, normal_below(_sums(normal_at(places[number:-1]), freedom)), places[-1]


def _sums(steps: Numbers, totals: Numbers) -> Numbers:
    """Return standard normals that are sums of independent ones, as of these totals of them."""
    sizes = np.sqrt(np.diff(totals, prepend=0.0))[:, None]
    found: Numbers = np.cumsum(steps * sizes, axis=0) / np.sqrt(totals)[:, None]
    return found
