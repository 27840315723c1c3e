"""Compute intervals, p values and the seeds still needed from a difference, its two errors, and all looks.

There are two errors: that of the seeds, which more seeds reduce, and that of the images that an accuracy
was measured on. Verdicts, p values, the least difference that is found and the seeds that are needed all rest
on both. They also rest on every look so far: what is told is what the intervals of all looks have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.report.judging.blocks import Contrast
from kharness.report.judging.images import NO_IMAGES, Images, least_shown, variance, widened
from kharness.report.judging.power import Chances, Rule, half_width, smallest
from kharness.report.judging.statistics import (
    POWER,
    Difference,
    Interval,
    crossing,
    hedges_factor,
    largest_range_p,
    largest_t_p,
    normal_p,
    sd_range,
    t_p,
    welch,
)

RANGE_LEVEL = 0.8
"""Confidence of the range of seeds needed, from the interval of the standard deviation."""


@dataclass(frozen=True)
class SeedsSeen:
    """The interval at one number of seeds, by itself."""

    seeds: int
    interval: Interval
    error: float
    """Part of the error rate that is spent on it."""


@dataclass(frozen=True, kw_only=True)
class Inference:
    """The statistics of a difference. Differences are variant minus baseline, in the metric's unit."""

    method: str = ""
    """The error that was used: `blocked`, `baseline_apart`, `variant_apart`, `split_plot`, `each_apart`,
    `paired`, `welch` where no seed is common to both, or `test_set`; empty without statistics."""
    interval: Interval | None = None
    """Simultaneous interval of all looks so far: all intervals of one table hold together at their level,
    which exceeds the report's confidence where later looks keep a share of the error. None where nothing
    varies, and where the looks have nothing in common. Of TOO_FEW and NOT_YET, that of this one look."""
    looks: tuple[SeedsSeen, ...] = ()
    """The intervals of all looks so far, each by itself; what they have in common is `interval`."""
    effect: float | None = None
    p: float | None = None
    """Two-sided p value of this comparison alone."""
    p_adjusted: float | None = None
    """p value behind the verdict, corrected for all comparisons and looks; None where no verdict is due."""
    degrees: float | None = None
    """Degrees of freedom of the error."""
    set_aside: tuple[str, ...] = ()
    """Variants of the same table that vary so much more that they are left out of the pooled error."""
    smallest: float | None = None
    """Minimum detectable effect: the true difference that these seeds show with 80 % power."""
    limit: float | None = None
    """Smallest difference that any number of seeds can show on these images; None where their number is
    unknown."""


@dataclass(frozen=True, kw_only=True)
class Evidence(Inference):
    """The statistics behind a verdict, and what more seeds would show."""

    needed: tuple[int | None, int | None, int | None] | None = None
    """Total seeds that would show a difference of this size, if it is not shown yet: at the estimated
    standard deviation and at the two ends of its interval; None for too many."""
    exceeds_chance: bool = True
    """Whether the difference exceeds its standard error; if not, its size carries no information."""


@dataclass(frozen=True)
class Spending:
    """The error rate that a table of comparisons may spend, at this look and at later ones."""

    alpha: float
    """Familywise error rate of all comparisons and looks together."""
    part: float
    """The table's share, by the number of comparisons in it."""
    look: int
    """Number of seeds at this look."""
    shares: Mapping[int, float]
    """Share of alpha by look: those before, this one and those to come."""

    @property
    def once(self) -> float:
        """Share of alpha at the first look. The test set, being the same at every look, has this share over
        all of them.
        """
        return self.shares[min(self.shares)]

    def level(self, images: Images) -> float:
        """Return the level at which all intervals of this look hold simultaneously, at least."""
        return 1 - self.alpha * (self.once if images.number else self.shares[self.look])

    def seen(self, interval: Interval) -> SeedsSeen:
        return SeedsSeen(self.look, interval, self.alpha * self.shares[self.look])

    def at(self, look: int) -> float:
        return self.alpha * self.shares[look] * self.part

    def adjusted(self, p: float) -> float:
        """Return a p value of the table, scaled to be comparable with alpha."""
        return p / (self.shares[self.look] * self.part)

    def of_images(self, p: float, comparisons: int) -> float:
        """Return the part of `p` that goes to the test set's error in one of the table's comparisons."""
        return p * self.once * self.part / comparisons


def provisional(found: Difference, confidence: float, method: str, images: Images) -> Evidence:
    """Return evidence between looks: an interval without correction for several looks, and no verdict."""
    seen = found.interval(confidence)
    told = Evidence(interval=seen, method=method, degrees=found.degrees, effect=found.effect, p=found.p)
    if seen is None or found.standard_error is None or found.degrees is None:
        return told
    degrees = found.degrees
    p = _p(found.mean, found.standard_error, lambda t: t_p(t, degrees), images.weight)
    half = widened((seen.high - seen.low) / 2, found.mean, images.weight(1 - confidence))
    return replace(told, interval=Interval(found.mean - half, found.mean + half, confidence), p=p)


def so_far(seen: Sequence[Evidence]) -> Evidence:
    """Return the last look's evidence with what the intervals of all looks have in common, the first one
    first (running intersection; Howard, Ramdas, McAuliffe, Sekhon 2021).

    All looks' intervals hold at once, so that this one holds, too; and so does the least of their p values.
    """
    looks = tuple(look for one in seen for look in one.looks)
    if len(looks) < 2:
        return seen[-1]
    *_, (_, common) = running(looks)
    ps = [one.p_adjusted for one in seen if one.p_adjusted is not None]
    return replace(seen[-1], interval=common, looks=looks, p_adjusted=min(ps) if common else None)


def running(looks: Sequence[SeedsSeen]) -> Iterator[tuple[int, Interval | None]]:
    """Yield what the intervals have in common up to each look, at the level that holds for all of them (union
    bound); None where that is nothing.
    """
    low, high, level = -math.inf, math.inf, 1.0
    for look in looks:
        low, high = max(low, look.interval.low), min(high, look.interval.high)
        level -= look.error
        yield look.seeds, Interval(low, high, level) if low <= high else None


def of_contrast(
    contrast: Contrast,
    spending: Spending,
    images: Images = NO_IMAGES,
    comparisons: int = 1,
    *,
    is_last: bool = True,
) -> Evidence:
    """Return the evidence of a look for one comparison of a table that has `comparisons` of them.

    What other seeds would show is left out where it is not the last look so far.
    """
    if not contrast.variance:
        return _by_images(contrast.mean, contrast.method, comparisons, spending, images)
    mean, error, look = contrast.mean, contrast.standard_error, spending.look
    weight = images.weight(spending.of_images(spending.alpha, comparisons))
    half = widened(half_width(contrast, spending.at(look), spending.alpha), mean, weight)
    p_adjusted = _p(
        mean,
        error,
        lambda t: spending.adjusted(_table_p(contrast, t)),
        lambda p: images.weight(spending.of_images(p, comparisons)),
    )
    # The paired t test of the comparison's own pairs guards the shared error: the interval is never narrower
    # (see `guard`), so neither is p. Its part of the difference is what the images do not explain.
    if contrast.own_variance:
        rest = math.sqrt(max(0.0, mean**2 - weight * variance(mean)))
        p_adjusted = max(p_adjusted, t_p(rest / contrast.own_standard_error, contrast.pairs - 1))
    of_images = variance(mean) / images.number if images.number else 0.0
    exceeds = abs(mean) > math.hypot(error, math.sqrt(of_images))
    interval = Interval(mean - half, mean + half, spending.level(images))
    deviation = math.sqrt(contrast.variance)
    found = Evidence(
        interval=interval,
        method=contrast.method,
        degrees=contrast.degrees,
        effect=mean / deviation * hedges_factor(contrast.degrees),
        p=_p(mean, error, lambda t: t_p(t, contrast.degrees), images.weight),
        p_adjusted=min(1.0, p_adjusted),
        limit=least_shown(weight) if images.number else None,
        exceeds_chance=exceeds,
        looks=(spending.seen(interval),),
    )
    if not is_last:
        return found
    earlier = tuple((at, spending.at(at)) for at in spending.shares if at < look)
    rule = Rule.of(contrast, spending.alpha)
    chances = Chances(rule, look, spending.at(look), deviation, contrast.degrees, weight, earlier)
    return replace(
        found,
        smallest=smallest(chances),
        needed=_needed(mean, chances, spending) if exceeds and abs(mean) <= half else None,
    )


def of_groups(
    first: Sequence[float], second: Sequence[float], spending: Spending, images: Images = NO_IMAGES
) -> Evidence:
    """Return the evidence for two independent groups (Welch 1947)."""
    found, look = welch(first, second), spending.look
    error, degrees = found.standard_error or 0.0, found.degrees or 0.0
    # As of a difference of so many pairs, which has the error of the two means.
    contrast = Contrast(found.mean, look, look * error**2, degrees, 0.0, "welch", 1, 1.0, 0.0, ())
    return replace(of_contrast(contrast, spending, images), effect=found.effect)


def _by_images(mean: float, method: str, comparisons: int, spending: Spending, images: Images) -> Evidence:
    """Return the evidence where nothing varies between the seeds, so that the test set's error is the only
    one.
    """
    weight = images.weight(spending.of_images(spending.alpha, comparisons))
    if images.number is None or not variance(mean):
        return Evidence(method=method)
    half = widened(0.0, mean, weight)
    p = normal_p(mean / math.sqrt(variance(mean) / images.number))
    interval = Interval(mean - half, mean + half, spending.level(images))
    return Evidence(
        interval=interval,
        method="test_set",
        p=p,
        p_adjusted=min(1.0, p / spending.of_images(1.0, comparisons)),
        limit=least_shown(weight),
        looks=(spending.seen(interval),),
    )


def _p(
    mean: float, error: float, p_of: Callable[[float], float], weight_of: Callable[[float], float]
) -> float:
    """Return the alpha at which the interval just reaches zero.

    `p_of` has it from |t| where the seeds are the only error; `weight_of` gives the test set's weight for it.
    """
    t = abs(mean) / error
    if not weight_of(p_of(t)):
        return p_of(t)

    def excess(seeds_t: float) -> float:
        return widened(seeds_t * error, mean, weight_of(p_of(seeds_t))) - abs(mean)

    # the images alone may reach as far as the difference, whatever the seeds say
    return p_of(crossing(excess, 0.0, t * (1 + 1e-9))) if excess(0.0) < 0 else 1.0


def _needed(mean: float, now: Chances, spending: Spending) -> tuple[int | None, int | None, int | None]:
    """Return the first looks by which as many fresh seeds would find a difference of this size on these
    images, at any of the looks to come.
    """
    later = [(at, spending.at(at)) for at in spending.shares if at > spending.look]
    if abs(mean) <= least_shown(now.weight) or not later or now.degrees is None:
        return None, None, None
    (*before, last) = later

    def first(spread: float, degrees: float | None) -> int | None:
        chances = Chances(now.rule, *last, spread * now.deviation, degrees, now.weight, tuple(before))
        powers = chances.powers(abs(mean))
        return next((at for (at, _), power in zip(later, powers, strict=True) if power >= POWER), None)

    # The estimated deviation is known badly, so the number is given at both ends of its interval too.
    low, high = sd_range(now.degrees, RANGE_LEVEL)
    return first(1.0, now.degrees), first(low, None), first(high, None)


def _table_p(contrast: Contrast, t: float) -> float:
    """Return p corrected for the comparisons of the same table, or for all pairs of its variants."""
    if contrast.variants:
        return largest_range_p(t, contrast.variants, contrast.degrees)
    p = largest_t_p(t, contrast.together, contrast.degrees, correlation=contrast.correlation)
    return p / contrast.share
