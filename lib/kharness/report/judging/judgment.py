"""Judge variants against their baselines in one metric: the verdict, its reason, and the seeds still needed.

Variants are compared with the baseline seed by seed, all in one table where they share it. `better`, `worse`
and `the same` follow from intervals that hold at once for all comparisons, and at every look that the plan
allows, so that one look's verdict stays when seeds are added; they need equal budgets and every planned run.
Everything else is said in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from kharness.report.collection import Variant
from kharness.report.judging.all_pairs import Chosen
from kharness.report.judging.blocks import among_all_pairs, contrasts, main_effect
from kharness.report.judging.budgets import Budget, budget_of, mismatch, same_work, trained_longer, unit_of
from kharness.report.judging.evidence import (
    Evidence,
    Inference,
    Spending,
    of_contrast,
    of_groups,
    provisional,
    running,
    so_far,
)
from kharness.report.judging.images import Images, images_behind
from kharness.report.judging.interim_looks import FEWEST, MOST_SEEDS, Looks
from kharness.report.judging.main_effects import MainEffect, cells_of, weights_of
from kharness.report.judging.pairing import Pairing, failed, failures, pair_up, rows_on
from kharness.report.judging.statistics import Difference, Interval, holm, paired, welch
from kharness.report.metrics import Metric
from kharness.report.settings import ReportSettings


class Verdict(StrEnum):
    """The outcome of comparing a variant with its baseline."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "the same"
    """The whole interval lies within REPORT_EQUIVALENCE_MARGIN of zero."""
    EQUAL = "equal"
    """Both sides have the same values in every record: only `make compare` looks at that."""
    NOT_SHOWN = "no difference shown"
    TOO_FEW = "too few seeds"
    NOT_YET = "not yet"
    """Seeds of the plan have not run yet."""
    NOT_COMPARABLE = "not comparable"
    UNDECIDED = "undecided"
    """No statistics are possible: there is a single number, or none of them vary."""


OF_THIS_SIZE = "one of this size"
"""A difference as large as the one that was found, where this stands beside it."""

SHOWN = (Verdict.BETTER, Verdict.WORSE, Verdict.SAME)
"""Verdicts that rest on an interval at the required confidence."""

OPEN = (Verdict.TOO_FEW, Verdict.NOT_YET, Verdict.NOT_COMPARABLE, Verdict.UNDECIDED)
"""Verdicts that say why there is none."""


@dataclass(frozen=True, kw_only=True)
class MeasuredPair:
    """A variant and its baseline as they were measured: runs, seeds and budgets."""

    variant: str
    baseline: str
    metric: Metric
    seeds: tuple[str, ...]
    """Seeds compared, common to both sides."""
    left_out: tuple[str, ...]
    """Names of runs without a partner of the same seed."""
    counts: tuple[int, int]
    """Number of values used from the variant and from the baseline."""
    ties: tuple[str, ...] = ()
    """Planned seeds on which both sides failed by themselves, so that nothing can be compared."""
    held_back: int = 0
    """Number of seeds, complete on both sides, that count at a later look."""
    failures: tuple[str, ...]
    """Planned runs without a number, each with the reason."""
    failed: tuple[int, int]
    """Number of `failures` that ended badly, for the variant and for the baseline; known failures do not
    count."""
    budgets: tuple[Budget, Budget]
    budget_unit: str = "steps"
    """Unit in which the budgets are compared."""
    images: int | None = None
    """Number of images that an accuracy was measured on; None where unknown, and for other metrics."""


@dataclass(frozen=True, kw_only=True)
class PlannedPair:
    """The plan of a comparison: its looks, and why just these two are compared."""

    planned_seeds: int
    """Number of seeds at the first look."""
    next_look: int | None
    """Number of seeds at which the next verdict is due; None if there is no later look."""
    over: tuple[str, ...] = ()
    """Axes that a main effect is averaged over; empty where a variant is compared."""
    chosen_of: int = 0
    """Number of pairs that this one was selected from after seeing results; 0 if it was planned."""


@dataclass(frozen=True, kw_only=True)
class JudgedPair(Inference):
    """The verdict and its statistics."""

    verdict: Verdict = Verdict.UNDECIDED
    reason: str = ""
    """Reason why the verdict is not one of SHOWN; empty if it is."""
    difference: float | None = None
    shown_at: int | None = None
    """Number of seeds at which a verdict of SHOWN was given first; None for other verdicts."""
    p_holm: float | None = None
    """`p` after Holm's correction (1979)."""
    more_seeds: int | None = None
    """For NOT_SHOWN: additional seeds, up to a look, that would show a difference of this size with 80 %
    power."""
    more_seeds_range: tuple[int, int | None] | None = None
    """`more_seeds` at the two ends of the 80 % interval of the standard deviation; None for over
    MOST_SEEDS in all."""


@dataclass(frozen=True, kw_only=True)
class Comparison(JudgedPair, PlannedPair, MeasuredPair):
    """One variant compared with its baseline: what was measured, what was planned, and what follows."""


@dataclass(frozen=True)
class _Prepared:
    """A comparison before any test: its runs, and whether it can be judged."""

    comparison: Comparison
    pairing: Pairing
    due: bool = False
    """Whether a look is reached, so that it can be judged now."""
    waiting: bool = False
    """Whether a look will be reached: it already counts among the simultaneous comparisons."""
    is_last: bool = True
    """Whether this is the last look so far."""

    @property
    def images(self) -> Images:
        cells = [cell for cell, _ in [*self.pairing.ours, *self.pairing.theirs]]
        return images_behind(self.comparison.metric, cells)

    def at(self, look: int) -> _Prepared | None:
        """Return the comparison as it was at a look; None if it is not due, or has not reached it."""
        if not self.due or look not in self.pairing.reached:
            return None
        pairing = self.pairing.at(look)
        seen = replace(self.comparison, seeds=pairing.seeds)
        return replace(self, comparison=seen, pairing=pairing, is_last=look == self.pairing.look)

    def numbers(self) -> tuple[list[float], list[float]]:
        return [n for _, n in self.pairing.ours], [n for _, n in self.pairing.theirs]


def judge(
    pairs: Sequence[tuple[Variant, Variant]],
    metrics: Sequence[Metric],
    settings: ReportSettings,
    effects: Sequence[MainEffect] = (),
    chosen: Chosen | None = None,
) -> Sequence[Comparison]:
    """Compare each variant with its baseline, in the metric of the pair's workload, then the main effects;
    return the comparisons in that order, corrected for the number that can be made.

    With `chosen`, pairs selected after seeing results are corrected for all that could have been selected.
    """
    prepared = [_prepare(*pair, metric, settings) for pair, metric in zip(pairs, metrics, strict=True)]
    metric_of = {variant.label: metric for (variant, _), metric in zip(pairs, metrics, strict=True)}
    of_effects = [_prepare_effect(one, metric_of[one.pairs[0][0].label], settings) for one in effects]
    # Comparisons that still wait for their seeds count from the start: were only those judged now counted,
    # each one that falls due would change the corrections of the verdicts given before it.
    family = sum(one.due or one.waiting for one in [*prepared, *of_effects])
    if chosen is not None:
        prepared, of_effects = (
            [replace(one, comparison=replace(one.comparison, chosen_of=chosen.pairs)) for one in some]
            for some in (prepared, of_effects)
        )
        family = chosen.family
    of_looks: list[list[Evidence]] = [[] for _ in prepared]
    for look in sorted({look for one in prepared if one.due for look in one.pairing.reached}):
        # With all that have reached it, also where they have gone on since: as the verdict was given then.
        then = {i: at for i, one in enumerate(prepared) if (at := one.at(look)) is not None}
        for members in _tables(then):
            together = [then[i] for i in members]
            for i, seen in zip(members, _evidence(together, family, chosen, settings), strict=True):
                of_looks[i].append(seen)
    of_looks += [
        [_evidence_of_effect(effect, one, look, family, settings) for look in one.pairing.reached if one.due]
        for effect, one in zip(effects, of_effects, strict=True)
    ]
    results = [
        _with_equal_time(_decide(one, seen, settings), one.pairing, settings) if seen else one.comparison
        for one, seen in zip([*prepared, *of_effects], of_looks, strict=True)
    ]
    return _with_holm(results)


def _prepare(variant: Variant, baseline: Variant, metric: Metric, settings: ReportSettings) -> _Prepared:
    """Return which runs are compared, and decide what needs no statistics."""
    pairing = pair_up(variant, baseline, metric, settings)
    ours, theirs = pairing.runs
    later = pairing.looks.later(pairing.look or min(pairing.counts))
    budgets = budget_of(ours), budget_of(theirs)
    comparison = Comparison(
        variant=variant.label,
        baseline=baseline.label,
        metric=metric,
        seeds=pairing.seeds,
        left_out=pairing.left_out,
        counts=pairing.counts,
        planned_seeds=pairing.looks.first,
        next_look=later[0] if later else None,
        budgets=budgets,
        failures=tuple(failures(variant, metric) + failures(baseline, metric)),
        failed=(failed(variant), failed(baseline)),
        budget_unit=unit_of(*budgets, settings.budget_unit),
        ties=pairing.ties,
        held_back=pairing.held_back,
    )
    prepared = _Prepared(comparison, pairing)
    return _ready(replace(prepared, comparison=replace(comparison, images=prepared.images.number)), settings)


def _prepare_effect(effect: MainEffect, metric: Metric, settings: ReportSettings) -> _Prepared:
    """Return a main effect as a comparison; it can be judged where each of its pairs can, on the same
    seeds.
    """
    members = [_prepare(*pair, metric, settings) for pair in effect.pairs]
    first, comparisons = members[0], [one.comparison for one in members]
    pairing = replace(
        first.pairing,
        ours=[run for one in members for run in one.pairing.ours],
        theirs=[run for one in members for run in one.pairing.theirs],
    )
    budgets = budget_of(pairing.runs[0]), budget_of(pairing.runs[1])
    differences = [one.difference for one in comparisons if one.difference is not None]
    comparison = replace(
        first.comparison,
        variant=effect.level,
        baseline=effect.baseline,
        over=effect.over,
        left_out=tuple(dict.fromkeys(run for one in comparisons for run in one.left_out)),
        failures=tuple(dict.fromkeys(line for one in comparisons for line in one.failures)),
        ties=tuple(dict.fromkeys(seed for one in comparisons for seed in one.ties)),
        failed=(sum(one.failed[0] for one in comparisons), sum(one.failed[1] for one in comparisons)),
        difference=sum(differences) / len(members) if len(differences) == len(members) else None,
        budgets=budgets,
        budget_unit=unit_of(*budgets, settings.budget_unit),
        # `first` may have statistics of its own pair: back to their defaults, which dataclasses keep on the
        # class
        **{name: getattr(Comparison, name) for name in (*_STATISTICS, "p_holm")},
    )
    prepared = _Prepared(comparison, pairing)
    for one in members:
        if not one.due:
            reason = f"{one.comparison.variant}: {one.comparison.reason}"
            found = _with(prepared, comparison, one.comparison.verdict, reason)
            return replace(found, waiting=all(other.due or other.waiting for other in members))
    # The contrast is taken seed by seed over all rows, so the rows need the same columns.
    tables = {one.comparison.seeds for one in members}
    # after the reasons of its members, which say more
    if len(tables) > 1 or not pairing.paired:
        reason = "its variants were not run on the same seeds"
        return _with(prepared, comparison, Verdict.UNDECIDED, reason)
    return replace(prepared, due=True)


_STATISTICS = tuple(field.name for field in fields(Inference))


def _ready(prepared: _Prepared, settings: ReportSettings) -> _Prepared:
    """Decide as far as that takes no test: missing numbers, unequal budgets, failures, too few seeds."""
    comparison, pairing = prepared.comparison, prepared.pairing
    first, second = prepared.numbers()
    for side, values in ((pairing.variant, first), (pairing.baseline, second)):
        if not values:
            return _without_numbers(prepared, side)
    if not pairing.seeds and pairing.waiting:
        return _collapsed(_with(prepared, comparison, Verdict.NOT_YET, pairing.waiting))
    found = paired(first, second) if pairing.paired else welch(first, second)
    comparison = replace(comparison, difference=found.mean)
    unlike = mismatch(*comparison.budgets, comparison.budget_unit)
    if unlike:
        return _with(prepared, comparison, Verdict.NOT_COMPARABLE, unlike)
    # After the budgets, before the spread: the surviving runs of a variant that diverges now and then are a
    # selection, and their mean would flatter it.
    if pairing.collapsed:
        return _collapsed(replace(prepared, comparison=comparison))
    if min(comparison.counts) < 2:
        return _single(prepared, comparison)
    return _due(replace(prepared, comparison=comparison), found, settings)


def _due(prepared: _Prepared, found: Difference, settings: ReportSettings) -> _Prepared:
    """Mark the comparison as due if a look is reached; otherwise keep an interval without a verdict."""
    comparison, pairing = prepared.comparison, prepared.pairing
    least = min(comparison.counts)
    if pairing.look is not None and least >= FEWEST:
        return replace(prepared, due=True)
    method = "paired" if pairing.paired else "welch"
    seen = provisional(found, settings.confidence, method, prepared.images)
    comparison = _told(comparison, seen)
    if pairing.waiting or (pairing.looks.fixed and least < pairing.looks.first):
        reason = pairing.waiting or f"{least} of {pairing.looks.first} planned seeds"
        return _with(prepared, comparison, Verdict.NOT_YET, reason)
    first = pairing.looks.first
    begin = f"the {first} planned first" if pairing.looks.planned > FEWEST else f"{max(FEWEST, first)}"
    return _with(prepared, comparison, Verdict.TOO_FEW, f"{least}, verdicts begin at {begin}")


def _single(prepared: _Prepared, comparison: Comparison) -> _Prepared:
    pairing = prepared.pairing
    if pairing.waiting:
        return _with(prepared, comparison, Verdict.NOT_YET, pairing.waiting)
    what = "one common seed" if pairing.paired else "a single run on one side"
    reason = f"{what}: chance cannot be separated from a difference"
    return _with(prepared, comparison, Verdict.UNDECIDED, reason)


def _without_numbers(prepared: _Prepared, side: Variant) -> _Prepared:
    comparison, pairing = prepared.comparison, prepared.pairing
    if pairing.collapsed and not side.complete:
        return _collapsed(prepared)
    if pairing.waiting:
        return _with(prepared, comparison, Verdict.NOT_YET, pairing.waiting)
    reason = f"no complete run of {side.label} has {comparison.metric.title}"
    return _with(prepared, comparison, Verdict.UNDECIDED, reason)


def _collapsed(prepared: _Prepared) -> _Prepared:
    """Report as not comparable if a planned run failed by itself: the survivors say nothing on their own."""
    if not prepared.pairing.collapsed:
        return prepared
    return _with(prepared, prepared.comparison, Verdict.NOT_COMPARABLE, prepared.pairing.collapsed)


def _with(prepared: _Prepared, comparison: Comparison, verdict: Verdict, reason: str) -> _Prepared:
    told = replace(comparison, verdict=verdict, reason=reason)
    return replace(prepared, comparison=told, waiting=verdict is Verdict.NOT_YET)


def _tables(prepared: Mapping[int, _Prepared]) -> Sequence[Sequence[int]]:
    """Return the indices of comparisons, grouped by the runs of the baseline that they share."""
    found: dict[tuple[object, ...], list[int]] = {}
    for i, one in prepared.items():
        # two groups without common seeds have no seed x variant table to share: a table of its own
        shared = (one.comparison.baseline, one.comparison.seeds) if one.pairing.paired else (i,)
        found.setdefault(shared, []).append(i)
    return [*found.values()]


def _evidence(
    together: Sequence[_Prepared], family: int, chosen: Chosen | None, settings: ReportSettings
) -> Sequence[Evidence]:
    """Return the evidence for the comparisons of one table; tables share the error by how many comparisons
    they hold.
    """
    first, number = together[0], len(together)
    # Within a table the comparisons hold at once by Dunnett's distribution (1955), across tables by
    # Bonferroni's inequality: a table of k among n comparisons spends k/n of the error.
    spending = _spending_of(first, number / family, settings)
    if not first.pairing.paired:
        return [of_groups(*first.numbers(), spending, first.images)]
    if chosen is not None:
        return _evidence_of_chosen(together, chosen, settings)
    table = [first.numbers()[1], *(one.numbers()[0] for one in together)]
    _, cells = cells_of([first.pairing.baseline, *(one.pairing.variant for one in together)])
    found = contrasts(table, cells)
    aside = tuple(one.comparison.variant for i, one in enumerate(together) if i in found[0].set_aside)
    return [
        replace(of_contrast(contrast, spending, one.images, number, is_last=one.is_last), set_aside=aside)
        for contrast, one in zip(found, together, strict=True)
    ]


def _evidence_of_effect(
    effect: MainEffect, prepared: _Prepared, look: int, family: int, settings: ReportSettings
) -> Evidence:
    """Return the evidence of a look for a main effect, with an error from all variants that have results on
    these seeds.
    """
    pairing = prepared.pairing
    spending = _spending(pairing.looks, look, 1 / family, settings)
    table, values = rows_on(effect.table, prepared.comparison.metric, pairing.seeds[:look])
    contrast = main_effect(values, cells_of(table)[1], weights_of(effect, table))
    return of_contrast(contrast, spending, prepared.images, is_last=look == pairing.look)


def _evidence_of_chosen(
    together: Sequence[_Prepared], chosen: Chosen, settings: ReportSettings
) -> Sequence[Evidence]:
    """Return the evidence for pairs with one baseline that were selected after seeing results; the error uses
    all variants.
    """
    first = together[0]
    group = chosen.group_of(first.pairing.baseline)
    # Who looks first and then picks has tested all pairs (Tukey 1953): they share the error, picked or not.
    pairs = math.comb(len(group), 2)
    spending = _spending_of(first, pairs / chosen.family, settings)
    # The matrix's own variants: a selection may have lost some of their axes.
    labels = [first.comparison.baseline, *(one.comparison.variant for one in together)]
    by_label = {one.label: one for of_workload in chosen.groups for one in of_workload}
    others = [one for one in group if one.label not in labels]
    rows = [*(by_label[label] for label in labels), *others]
    table, values = rows_on(rows, first.comparison.metric, first.pairing.seeds)
    return [
        of_contrast(among_all_pairs(contrast, len(group)), spending, one.images, pairs, is_last=one.is_last)
        for contrast, one in zip(contrasts(values, cells_of(table)[1]), together, strict=False)
    ]


def _spending_of(prepared: _Prepared, part: float, settings: ReportSettings) -> Spending:
    look = prepared.pairing.look
    assert look is not None
    return _spending(prepared.pairing.looks, look, part, settings)


def _spending(looks: Looks, look: int, part: float, settings: ReportSettings) -> Spending:
    return Spending(1 - settings.confidence, part, look, looks.shares(look))


def _told(comparison: Comparison, seen: Evidence) -> Comparison:
    found: dict[str, Any] = {name: getattr(seen, name) for name in _STATISTICS}
    return replace(comparison, **found)


def _decide(prepared: _Prepared, of_looks: Sequence[Evidence], settings: ReportSettings) -> Comparison:
    seen = so_far(of_looks)
    comparison = _told(prepared.comparison, seen)
    if comparison.metric.unjudged:
        return replace(comparison, verdict=Verdict.UNDECIDED, reason="which way is better is unknown")
    if seen.interval is None:
        return _contradicting(comparison) if len(seen.looks) > 1 else _without_spread(comparison)
    # The running intersection of the looks' intervals only shrinks (Howard et al. 2021): a verdict stays,
    # unless looks contradict each other.
    verdicts = {look: _verdict(common, comparison.metric, settings) for look, common in running(seen.looks)}
    verdict = [*verdicts.values()][-1] if verdicts else None
    if verdict is not None:
        shown_at = next(look for look, one in verdicts.items() if one is verdict)
        return replace(comparison, verdict=verdict, shown_at=shown_at)
    more, limits = _more(seen, comparison)
    return replace(
        comparison,
        verdict=Verdict.NOT_SHOWN,
        reason=_more_words(seen, comparison, more, limits),
        more_seeds=more,
        more_seeds_range=limits,
    )


def _verdict(interval: Interval | None, metric: Metric, settings: ReportSettings) -> Verdict | None:
    """Return what an interval shows; None where that is nothing."""
    if interval is None:
        return None
    # Equivalence comes first: an interval within the margin may leave out zero as well, and a difference too
    # small to matter is not an improvement (two one-sided tests, Schuirmann 1987).
    if settings.margin and -settings.margin < interval.low and interval.high < settings.margin:
        return Verdict.SAME
    if interval.excludes_zero:
        return Verdict.BETTER if (interval.low > 0) == metric.higher_is_better else Verdict.WORSE
    return None


def _contradicting(comparison: Comparison) -> Comparison:
    """Give no verdict where no difference is within the intervals of all looks: one of them is wrong."""
    above = max(comparison.looks, key=lambda one: one.interval.low).seeds
    below = min(comparison.looks, key=lambda one: one.interval.high).seeds
    first, second = sorted((above, below))
    reason = f"the looks at {first} and {second} seeds contradict each other"
    return replace(comparison, verdict=Verdict.UNDECIDED, reason=reason)


def _without_spread(comparison: Comparison) -> Comparison:
    """Give the reason why no test was possible."""
    if comparison.seeds and not comparison.difference:
        reason = f"all {comparison.counts[0]} pairs are exactly equal"
        return replace(comparison, verdict=Verdict.NOT_SHOWN, method="", reason=reason)
    what = "every pair differs by the same amount" if comparison.seeds else "no side varies between its runs"
    return replace(comparison, method="", reason=f"{what}, so the spread of chance is unknown")


def _more(seen: Evidence, comparison: Comparison) -> tuple[int | None, tuple[int, int | None] | None]:
    """Return how many seeds to add, at the estimated standard deviation and at the ends of its interval."""
    have = min(comparison.counts)
    if seen.needed is None or not seen.exceeds_chance:
        return None, None
    needed, fewest, most = seen.needed
    if needed is None or fewest is None:
        return None, None
    return needed - have, (fewest - have, None if most is None else most - have)


def _more_words(
    seen: Evidence,
    comparison: Comparison,
    more: int | None,
    limits: tuple[int, int | None] | None,
) -> str:
    if comparison.next_look is None:
        return f"all {comparison.planned_seeds} planned seeds are there"
    if not seen.exceeds_chance:
        return "it is within chance"
    if seen.limit is not None and abs(comparison.difference or 0.0) <= seen.limit:
        return f"no number of seeds shows {OF_THIS_SIZE} on {comparison.images:,} images"
    if more is None or limits is None:
        return f"not even {MOST_SEEDS:,} seeds would show {OF_THIS_SIZE}"
    low, high = limits
    at_least = f" (at least {low})" if high is None else f" ({low} to {high})"
    between = "" if low == high else at_least
    return f"{more}{between} more seeds for {OF_THIS_SIZE}"


def _with_equal_time(decided: Comparison, pairing: Pairing, settings: ReportSettings) -> Comparison:
    """Withdraw `better` or `worse` if the side ahead trained longer: time is a budget too.

    Costs such as memory or energy are exempt: less is less, however long the training took.
    """
    if decided.verdict not in (Verdict.BETTER, Verdict.WORSE) or decided.metric.is_cost:
        return decided
    if decided.budget_unit != "time" and not same_work(*decided.budgets):
        return decided  # another size of batches takes another time for the same budget, which is said
    ahead, behind = pairing.runs if decided.verdict is Verdict.BETTER else reversed(pairing.runs)
    longer = trained_longer(
        ahead,
        behind,
        in_pairs=bool(decided.seeds),
        tolerance=settings.time_tolerance,
        level=settings.confidence,
    )
    if not longer:
        return decided
    who = "it" if decided.verdict is Verdict.BETTER else "the baseline"
    reason = f"{decided.verdict}, but {who} had more time: {longer}"
    return replace(decided, verdict=Verdict.NOT_COMPARABLE, reason=reason)


def _with_holm(comparisons: Sequence[Comparison]) -> Sequence[Comparison]:
    # Shown beside `p_adjusted`, which decides: Holm's step-down is valid whatever the dependence of the tests
    # (Holm 1979), but gives no intervals, and knows of no looks.
    tested = {i: one.p for i, one in enumerate(comparisons) if one.p is not None}
    results = list(comparisons)
    for i, p_holm in zip(tested, holm([*tested.values()]), strict=True):
        results[i] = replace(results[i], p_holm=p_holm)
    return results
