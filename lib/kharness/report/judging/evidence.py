"""From a difference and its error to an interval, a p value, and what more seeds would show."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.report.judging.blocks import Contrast
from kharness.report.judging.statistics import (
    Difference,
    Interval,
    detectable,
    hedges_factor,
    largest_t,
    largest_t_p,
    normal_p,
    normal_quantile,
    sd_range,
    t_p,
    t_quantile,
    welch,
)

RANGE_LEVEL = 0.8
"""Confidence of the range of seeds that are needed, by the interval of the standard deviation."""


@dataclass(frozen=True)
class Evidence:
    """What a comparison rests on."""

    interval: Interval | None
    """None where nothing varies."""
    method: str
    degrees: float | None
    effect: float | None
    p: float | None
    p_adjusted: float | None
    smallest: float | None = None
    needed: tuple[int | None, int | None, int | None] | None = None
    """Seeds in all that would show a difference of this size: at the spread found, and at the ends of its
    interval; None for too many."""
    exceeds_chance: bool = True
    """Whether the difference is larger than its standard error; if not, its size says nothing."""
    set_aside: tuple[str, ...] = ()
    """Variants of the table that the others are judged without."""


@dataclass(frozen=True)
class Spending:
    """How much error a table of comparisons may make, at this look and at later ones."""

    alpha: float
    """Of all comparisons and all looks together."""
    part: float
    """The table's, by how many of all comparisons it holds."""
    look: int
    """The number of seeds."""
    shares: Mapping[int, float]
    """Of alpha, by look: this one and those to come."""

    @property
    def level(self) -> float:
        """At which all intervals of this look hold at once."""
        return 1 - self.alpha * self.shares[self.look]

    def at(self, look: int) -> float:
        return self.alpha * self.shares[look] * self.part

    def adjusted(self, p: float) -> float:
        """A p of the table, made comparable with alpha."""
        return p / (self.shares[self.look] * self.part)


@dataclass(frozen=True)
class _Test:
    """A t test of one mean, among others."""

    mean: float
    standard_error: float
    degrees: float
    at: int
    """The number of seeds."""
    critical: Callable[[float, float], float]
    """From degrees of freedom and alpha."""

    def detectable(self, seeds: int, alpha: float) -> float:
        """The least difference that so many seeds show, if the deviation is the one found."""
        degrees = self.degrees * (seeds - 1) / (self.at - 1)
        error = self.standard_error * math.sqrt(self.at / seeds)
        return detectable(self.critical(degrees, alpha), degrees) * error


def provisional(found: Difference, confidence: float, method: str) -> Evidence:
    """At no look: an interval that holds for whoever looks only now, and no verdict."""
    return Evidence(found.interval(confidence), method, found.degrees, found.effect, found.p, None)


def of_contrast(contrast: Contrast, spending: Spending) -> Evidence:
    """Of one of the comparisons of a table."""
    if not contrast.variance:
        return Evidence(None, contrast.method, None, None, None, None)
    degrees, error = contrast.degrees, contrast.standard_error
    critical = _critical(contrast)
    # Bonferroni's is a little on the safe side
    plans = critical if contrast.method == "blocked" else _bonferroni(contrast.together / contrast.share)
    test = _Test(contrast.mean, error, degrees, spending.look, plans)
    # Whatever a shared error says, what its own pairs do not show by themselves is not shown: the variant may
    # vary more than tests before the test can tell.
    guard = t_quantile(contrast.pairs - 1, 1 - spending.alpha) * contrast.own_standard_error
    half = max(critical(degrees, spending.at(spending.look)) * error, guard)
    adjusted = spending.adjusted(_table_p(contrast))
    if contrast.own_variance:
        adjusted = max(adjusted, t_p(contrast.mean / contrast.own_standard_error, contrast.pairs - 1))
    seen = Evidence(
        interval=Interval(contrast.mean - half, contrast.mean + half, spending.level),
        method=contrast.method,
        degrees=degrees,
        effect=contrast.mean / math.sqrt(contrast.variance) * hedges_factor(degrees),
        p=t_p(contrast.mean / error, degrees),
        p_adjusted=min(1.0, adjusted),
    )
    return _with_plan(seen, test, spending)


def of_groups(first: Sequence[float], second: Sequence[float], spending: Spending) -> Evidence:
    """Of two independent groups (Welch 1947)."""
    found = welch(first, second)
    if found.standard_error is None or found.degrees is None or found.p is None:
        return Evidence(None, "welch", None, None, None, None)
    test = _Test(found.mean, found.standard_error, found.degrees, spending.look, _single)
    half = _single(found.degrees, spending.at(spending.look)) * found.standard_error
    seen = Evidence(
        interval=Interval(found.mean - half, found.mean + half, spending.level),
        method="welch",
        degrees=found.degrees,
        effect=found.effect,
        p=found.p,
        p_adjusted=min(1.0, spending.adjusted(found.p)),
    )
    return _with_plan(seen, test, spending)


def with_test_set(seen: Evidence, mean: float, images: int, comparisons: int, spending: Spending) -> Evidence:
    """An accuracy is known no better than a test set of so many images allows.

    Two accuracies that differ by d differ on at least images * |d| images; were chance to decide those, d had
    this standard error (McNemar 1947). It is no matter of seeds, so that more of them do not make it less.
    """
    error = math.sqrt(max(0.0, abs(mean) * (1 - abs(mean))) / images)
    if not error:
        return seen
    half = normal_quantile(spending.at(spending.look) / comparisons) * error
    p = normal_p(mean / error)
    adjusted = min(1.0, spending.adjusted(p * comparisons))
    interval = Interval(mean - half, mean + half, spending.level)
    if seen.interval is None:
        return Evidence(interval, "test_set", None, None, p, adjusted)
    if interval.high - interval.low > seen.interval.high - seen.interval.low:
        seen = replace(seen, interval=interval)
    return replace(seen, p_adjusted=max(adjusted, seen.p_adjusted or 0.0))


def _with_plan(seen: Evidence, test: _Test, spending: Spending) -> Evidence:
    found = {at: test.detectable(at, spending.at(at)) for at in spending.shares}
    low, high = sd_range(test.degrees, RANGE_LEVEL)

    def first(spread: float) -> int | None:
        return next((at for at in found if at > test.at and spread * found[at] <= abs(test.mean)), None)

    return replace(
        seen,
        smallest=found[test.at],
        needed=(first(1.0), first(low), first(high)),
        exceeds_chance=abs(test.mean) > test.standard_error,
    )


def _critical(contrast: Contrast) -> Callable[[float, float], float]:
    together, share, correlation = contrast.together, contrast.share, contrast.correlation
    return lambda degrees, alpha: largest_t(together, degrees, alpha * share, correlation=correlation)


def _bonferroni(comparisons: float) -> Callable[[float, float], float]:
    return lambda degrees, alpha: _single(degrees, alpha / comparisons)


def _single(degrees: float, alpha: float) -> float:
    return t_quantile(degrees, 1 - alpha)


def _table_p(contrast: Contrast) -> float:
    """Corrected for the comparisons of the same table."""
    t = contrast.mean / contrast.standard_error
    p = largest_t_p(t, contrast.together, contrast.degrees, correlation=contrast.correlation)
    return p / contrast.share
