"""Student's t for few seeds: confidence intervals, paired and unpaired differences, multiple comparisons.

Numbers in, numbers out: nothing here knows runs or metrics. Every function takes finite numbers. What cannot
be computed (one value, no spread) is None, never a number that looks like one. docs/statistics.md has the
formulas with their sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

POWER = 0.8
"""Probability of detecting a difference of the assumed size, by the convention of Cohen (1988)."""

# A spread below this part of the largest value is rounding, not variation between seeds.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval; `level` is its confidence, such as 0.95."""

    low: float
    high: float
    level: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    @property
    def nearest_zero(self) -> float:
        """The number in it that is nearest to zero."""
        return min(max(self.low, 0.0), self.high)


@dataclass(frozen=True)
class Difference:
    """A mean difference (first minus second) and the parameters of its t distribution."""

    mean: float
    standard_error: float | None
    """None where spread cannot be estimated: fewer than two values, or values that do not vary."""
    degrees: float | None
    """Degrees of freedom."""
    effect: float | None
    """mean / standard deviation (Cohen's d_z of pairs, d of two groups with their pooled deviation) corrected
    for its small-sample bias (Hedges 1981); None for two pairs, where that is undefined."""

    @property
    def p(self) -> float | None:
        """Two-sided p value."""
        if self.standard_error is None or self.degrees is None:
            return None
        return t_p(self.mean / self.standard_error, self.degrees)

    def interval(self, level: float) -> Interval | None:
        if self.standard_error is None or self.degrees is None:
            return None
        half = t_quantile(self.degrees, level) * self.standard_error
        return Interval(self.mean - half, self.mean + half, level)


def mean_interval(values: Sequence[float], level: float) -> Interval | None:
    """Return the confidence interval of a mean, mean ± t·s/√n; None for one value or for values that do not
    vary.
    """
    return paired(values, [0.0] * len(values)).interval(level) if values else None


def paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the mean of the differences within pairs; values at the same index are a pair."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    n, mean = len(differences), fmean(differences)
    spread = _spread(differences, largest=max(map(abs, [*first, *second])))
    if not spread:
        return Difference(mean, None, None, None)
    return Difference(mean, spread / math.sqrt(n), n - 1, _unbiased(mean / spread, n - 1))


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference of two independent groups whose variances may differ, with the degrees of freedom
    of Welch (1947).
    """
    mean, counts = fmean(first) - fmean(second), (len(first), len(second))
    largest = max(map(abs, [*first, *second]))
    spreads = _spread(first, largest=largest), _spread(second, largest=largest)
    if None in spreads or not any(spreads):
        return Difference(mean, None, None, None)
    variances = [(spread or 0.0) ** 2 for spread in spreads]
    of_means = [variance / n for variance, n in zip(variances, counts, strict=True)]
    total = sum(of_means)
    degrees = total**2 / sum(part**2 / (n - 1) for part, n in zip(of_means, counts, strict=True))
    # The error uses separate variances, the effect size the pooled one: Cohen's d is defined by it.
    pooled = sum(v * (n - 1) for v, n in zip(variances, counts, strict=True)) / (sum(counts) - 2)
    effect = _unbiased(mean / math.sqrt(pooled), sum(counts) - 2)
    return Difference(mean, math.sqrt(total), degrees, effect)


def hedges_factor(degrees: float) -> float:
    """Return the factor J that removes the small-sample bias of a standardized difference (Hedges 1981, the
    exact form), for two degrees of freedom or more.
    """
    half = degrees / 2
    return math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values corrected for their number, in the order given (Holm 1979)."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected = [0.0] * len(ps)
    largest = 0.0
    for rank, i in enumerate(order):
        # A corrected p never falls below that of a smaller p, since a test in this order stops at the first
        # failure.
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = largest
    return corrected


def largest_t(comparisons: int, degrees: float, alpha: float, *, correlation: float = 0.5) -> float:
    """Return the critical |t| that the largest of several comparisons with one baseline stays under with
    probability 1 - alpha.

    They share an error of so many degrees of freedom; `correlation` is that of two differences, one half
    where the baseline varies as the others do (Dunnett 1955). Degrees and correlation are rounded down to
    two digits, which errs on the safe side.
    """
    if comparisons == 1:
        return t_quantile(degrees, 1 - alpha)
    # Multiples of 0.05 keep the cache small; 1e-9 keeps 0.5 from being floored to 0.45 by rounding error.
    rounded = math.floor(correlation * 20 + 1e-9) / 20
    return _largest_t(comparisons, _rounded_down(degrees), alpha, rounded)


def largest_t_p(t: float, comparisons: int, degrees: float, *, correlation: float = 0.5) -> float:
    """Return the probability that the largest |t| of comparisons without any true difference is at least
    `t`.
    """
    if comparisons == 1:
        return t_p(t, degrees)
    # Both integrals are over a standard normal, as trapezoids whose error is far below 1e-8: over what the
    # differences have in common (the baseline), and over the estimated error, by its quantiles.
    common, weights = _GRID[:_HALF, None], _OF_HALF[:, None] * _WEIGHTS[None, :]
    reach = abs(t) * _error_quantiles(degrees)[None, :]
    # each difference is √ρ · common + √(1-ρ) · its own: given `common` they are independent (Dunnett 1955)
    shift, rest = math.sqrt(correlation) * common, math.sqrt(1 - correlation)
    outside = normal_below((shift - reach) / rest) + normal_below((-shift - reach) / rest)
    # 1 - (1 - outside)^comparisons loses its digits where `outside` is tiny, which is where p values matter.
    with np.errstate(divide="ignore"):
        return float((weights * -np.expm1(comparisons * np.log1p(-np.minimum(outside, 1)))).sum())


def largest_range(variants: int, degrees: float, alpha: float) -> float:
    """Return the critical |t| that all pairs of so many variants stay under with probability 1 - alpha (Tukey
    1953).

    That is the studentized range over the square root of two; degrees are rounded down as above.
    """
    if variants == 2:
        return t_quantile(degrees, 1 - alpha)
    return _largest_range(variants, _rounded_down(degrees), alpha)


def largest_range_p(t: float, variants: int, degrees: float) -> float:
    """Return the probability that the largest |t| over all pairs of equal variants is at least `t`."""
    if variants == 2:
        return t_p(t, degrees)
    # over the highest of the variants, and over the estimated error by its quantiles, as above
    highest, weights = _GRID[:, None], _WEIGHTS[:, None] * _WEIGHTS[None, :]
    reach = math.sqrt(2) * abs(t) * _error_quantiles(degrees)[None, :]
    # 1 - k ∫φ(z) (Φ(z) - Φ(z - w))^(k-1) dz, where the 1 is k ∫φ(z) Φ(z)^(k-1) dz: a small p keeps its digits
    inside = normal_below(highest) ** (variants - 1) - (
        normal_below(highest) - normal_below(highest - reach)
    ) ** (variants - 1)
    return float((weights * variants * inside).sum())


def _special() -> Any:
    """Return SciPy's module of distributions, which takes a while to load: nothing that plans needs it."""
    from scipy import special

    return special


def t_p(t: float, degrees: float) -> float:
    """Return the two-sided p value of a t statistic."""
    return 2 * float(_special().stdtr(degrees, -abs(t)))


def normal_quantile(alpha: float) -> float:
    """Return the |z| that a standard normal stays under with probability 1 - alpha."""
    return float(-_special().ndtri(alpha / 2))


def normal_p(z: float) -> float:
    """Return the two-sided p value of a standard normal statistic."""
    return 2 * float(_special().ndtr(-abs(z)))


def mean_square_p(mean_square: float, degrees: float, rest: float, degrees_of_rest: float) -> float:
    """Return the p value of the F test whether a mean square exceeds that of the rest, given as a sum of
    squares.
    """
    return float(mean_square_ps(np.array(mean_square), degrees, np.array(rest), degrees_of_rest))


def mean_square_ps(
    squares: Numbers,
    degrees: float,
    rest: Numbers,
    degrees_of_rest: float | Numbers,
) -> Numbers:
    """Return `mean_square_p` of arrays."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ps: Numbers = _special().fdtrc(degrees, degrees_of_rest, squares / (rest / degrees_of_rest))
    return np.where(rest > 0, ps, np.where(squares > 0, 0.0, 1.0))


def chi_square_p(statistic: float, degrees: float) -> float:
    """Return the probability that chi square is at least this large."""
    return float(_special().chdtrc(degrees, statistic))


def estimated_deviations(degrees: float, number: int) -> Numbers:
    """Return quantiles of the estimate of a standard deviation of 1, each for an equal share of the cases
    (chi).
    """
    above = 1 - (np.arange(number) + 0.5) / number
    found: Numbers = np.sqrt(_special().chdtri(degrees, above) / degrees)
    return found


def crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of a function whose signs at the two ends differ."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-9 * high, rtol=1e-9))


def sd_range(degrees: float, level: float) -> tuple[float, float]:
    """Return the interval of a standard deviation, as factors of its estimate (chi square)."""
    tail = (1 - level) / 2
    return math.sqrt(degrees / float(_special().chdtri(degrees, tail))), math.sqrt(
        degrees / float(_special().chdtri(degrees, 1 - tail))
    )


def _rounded_down(degrees: float) -> float:
    size = 10.0 ** (math.floor(math.log10(degrees)) - 1)
    return degrees if float(degrees).is_integer() else math.floor(degrees / size) * size


@lru_cache(maxsize=65536)
def _largest_range(variants: int, degrees: float, alpha: float) -> float:
    pairs = math.comb(variants, 2)
    return _critical(lambda t: largest_range_p(t, variants, degrees), pairs, degrees, alpha)


@lru_cache(maxsize=65536)
def _largest_t(comparisons: int, degrees: float, alpha: float, correlation: float) -> float:
    def p_of(t: float) -> float:
        return largest_t_p(t, comparisons, degrees, correlation=correlation)

    return _critical(p_of, comparisons, degrees, alpha)


def _critical(p_of: Callable[[float], float], comparisons: int, degrees: float, alpha: float) -> float:
    # One comparison alone and Bonferroni's inequality bracket the critical value.
    low, high = t_quantile(degrees, 1 - alpha), t_quantile(degrees, 1 - alpha / comparisons)
    # a hair above the upper end: at tiny levels Bonferroni's value is the critical one but for rounding
    return crossing(lambda t: math.log(p_of(t) / alpha), low, high * (1 + 1e-9))


# Steps of a quarter are enough: over a normal density the trapezoidal rule converges exponentially (Trefethen
# and Weideman, SIAM Review 56, 2014), and beyond 8.5 its density is below 1e-16.
_GRID: Numbers = np.linspace(-8.5, 8.5, 69)
_WEIGHTS: Numbers = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()
# What is the same on both sides of zero is taken at one of them, for both: half of the time.
_HALF = len(_GRID) // 2 + 1
_OF_HALF: Numbers = np.append(2 * _WEIGHTS[: _HALF - 1], _WEIGHTS[_HALF - 1])


@lru_cache(maxsize=4096)
def _error_quantiles(degrees: float) -> Numbers:
    """Return estimated over true standard error, at the probabilities of _GRID."""
    found: Numbers = np.sqrt(_special().chdtri(degrees, normal_below(-_GRID)) / degrees)
    return found


def normal_below(values: Numbers) -> Numbers:
    """Return the probability that a standard normal is below each value."""
    found: Numbers = _special().ndtr(values)
    return found


def normal_at(below: Numbers) -> Numbers:
    """Return the values of a standard normal that are exceeded but for these probabilities."""
    found: Numbers = _special().ndtri(below)
    return found


@lru_cache(maxsize=4096)
def t_quantile(degrees: float, level: float) -> float:
    """Return the t that bounds a two-sided interval of `level`."""
    return float(-_special().stdtrit(degrees, (1 - level) / 2))


def _unbiased(standardized: float, degrees: int) -> float | None:
    return standardized * hedges_factor(degrees) if degrees > 1 else None


def _spread(values: Sequence[float], *, largest: float) -> float | None:
    """Return the sample standard deviation; 0 if it is only rounding of `largest`, None for a single
    value.
    """
    if len(values) < 2:
        return None
    spread = stdev(values)
    return spread if spread > _ROUNDING * largest else 0.0
