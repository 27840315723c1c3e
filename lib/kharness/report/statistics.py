"""Student's t for few seeds: intervals, paired and unpaired differences, Holm's correction, seeds needed.

Numbers in, numbers out: nothing here knows runs or metrics. Every function takes finite numbers. What cannot
be computed (one value, no spread) is None, never a number that looks like one. docs/statistics.md has the
formulas with their sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

POWER = 0.8
"""Chance to see a difference of the assumed size, as is usual since Cohen (1988)."""

MOST_SEEDS = 1000
"""Beyond this many, the number of seeds needed is not searched for."""

# A spread below this part of the largest value is rounding, not variation between seeds.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """Two-sided; `level` is its confidence, such as 0.95."""

    low: float
    high: float
    level: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Difference:
    """A mean difference (first minus second) with what its t distribution needs."""

    mean: float
    counts: tuple[int, int]
    """Numbers of the first and of the second; pairs have the same of both."""
    standard_error: float | None
    """None where spread cannot be estimated: fewer than two values, or values that do not vary."""
    degrees: float | None
    """Of freedom."""
    standardised: float | None
    """mean / standard deviation: Cohen's d_z of pairs, d of two groups with their pooled deviation."""
    effect: float | None
    """That without its bias for few values (Hedges); None for two pairs, which allow no such correction."""
    spreads: tuple[float, float] = (0.0, 0.0)
    """Standard deviations of the first and the second, where they are independent groups."""

    @property
    def p(self) -> float | None:
        """Two-sided."""
        if self.standard_error is None or self.degrees is None:
            return None
        return 2 * _t_cdf(self.degrees, -abs(self.mean) / self.standard_error)

    def interval(self, level: float) -> Interval | None:
        if self.standard_error is None or self.degrees is None:
            return None
        half = _t_quantile(self.degrees, level) * self.standard_error
        return Interval(self.mean - half, self.mean + half, level)


def mean_interval(values: Sequence[float], level: float) -> Interval | None:
    """The interval of a mean, mean ± t·s/√n; None for one value, and for values that do not vary."""
    return paired(values, [0.0] * len(values)).interval(level) if values else None


def paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The mean of the differences within pairs, values at the same place being a pair."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    n, mean = len(differences), fmean(differences)
    spread = _spread(differences, largest=max(map(abs, [*first, *second])))
    if not spread:
        return Difference(mean, (n, n), None, None, None, None)
    standardised = mean / spread
    return Difference(
        mean, (n, n), spread / math.sqrt(n), n - 1, standardised, _unbiased(standardised, n - 1)
    )


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Two independent groups whose variances may differ, with the degrees of freedom of Welch (1947)."""
    mean, counts = fmean(first) - fmean(second), (len(first), len(second))
    largest = max(map(abs, [*first, *second]))
    spreads = _spread(first, largest=largest), _spread(second, largest=largest)
    if None in spreads or not any(spreads):
        return Difference(mean, counts, None, None, None, None)
    deviations = spreads[0] or 0.0, spreads[1] or 0.0
    variances = [deviation**2 for deviation in deviations]
    of_means = [variance / n for variance, n in zip(variances, counts, strict=True)]
    total = sum(of_means)
    degrees = total**2 / sum(part**2 / (n - 1) for part, n in zip(of_means, counts, strict=True))
    pooled = sum(v * (n - 1) for v, n in zip(variances, counts, strict=True)) / (sum(counts) - 2)
    standardised = mean / math.sqrt(pooled)
    effect = _unbiased(standardised, sum(counts) - 2)
    return Difference(mean, counts, math.sqrt(total), degrees, standardised, effect, deviations)


def hedges_factor(degrees: int) -> float:
    """What makes a standardised difference unbiased (Hedges 1981, the exact form); from two degrees on."""
    half = degrees / 2
    return math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)


def holm(ps: Sequence[float]) -> list[float]:
    """P values corrected for their number, in the order given (Holm 1979)."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected = [0.0] * len(ps)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = largest
    return corrected


def simultaneous_level(level: float, comparisons: int) -> float:
    """The level of each interval so that all of them hold at once with `level` (Bonferroni's inequality)."""
    return 1 - (1 - level) / max(1, comparisons)


def pairs_needed(effect: float, level: float) -> int | None:
    """The fewest pairs whose t test sees an effect d_z in POWER of all cases; None if over MOST_SEEDS."""
    return _fewest(lambda n: _power(level, n - 1, effect * math.sqrt(n)))


def group_size_needed(
    difference: float, level: float, spreads: tuple[float, float] = (1.0, 1.0)
) -> int | None:
    """The same for Welch's test of two independent groups of equal size, with these standard deviations.

    Without those the difference is the effect d.
    """
    first, second = (spread**2 for spread in spreads)
    share = (first + second) ** 2 / (first**2 + second**2)  # of Welch's degrees of freedom, 1 to 2
    return _fewest(lambda n: _power(level, share * (n - 1), difference * math.sqrt(n / (first + second))))


def _fewest(power_of: Callable[[int], float]) -> int | None:
    """Power grows with n: doubled until it is enough, then halved back to the least n."""
    low, high = 2, 2
    while power_of(high) < POWER:
        if high == MOST_SEEDS:
            return None
        low, high = high + 1, min(2 * high, MOST_SEEDS)
    while low < high:
        middle = (low + high) // 2
        if power_of(middle) >= POWER:
            high = middle
        else:
            low = middle + 1
    return low


def _power(level: float, degrees: float, noncentrality: float) -> float:
    """Of a two-sided t test; the chance to find the wrong direction does not count."""
    from scipy.special import nctdtr

    t = _t_quantile(degrees, level)
    power = float(1 - nctdtr(degrees, abs(noncentrality), t))
    return 1.0 if math.isnan(power) and abs(noncentrality) > t else power  # nan: too close to 1 to compute


def _t_quantile(degrees: float, level: float) -> float:
    """The t that a two-sided interval of `level` reaches to."""
    from scipy.special import stdtrit

    return float(-stdtrit(degrees, (1 - level) / 2))


def _t_cdf(degrees: float, t: float) -> float:
    from scipy.special import stdtr

    return float(stdtr(degrees, t))


def _unbiased(standardised: float, degrees: int) -> float | None:
    return standardised * hedges_factor(degrees) if degrees > 1 else None


def _spread(values: Sequence[float], *, largest: float) -> float | None:
    """The sample standard deviation; 0 for what is only rounding of `largest`, None for a single value."""
    if len(values) < 2:
        return None
    spread = stdev(values)
    return spread if spread > _ROUNDING * largest else 0.0
