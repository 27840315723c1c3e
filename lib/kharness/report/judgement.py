"""One variant against another in one metric: what is shown, what is not, and what would be needed.

Variants are compared pair by pair of the same seed; `better` and `worse` need an interval without zero and
equal budgets, and everything else is said in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kharness.report.budgets import Budget, budget_of, mismatch, trained_longer
from kharness.report.metrics import COSTS, Metric
from kharness.report.runs import RunData
from kharness.report.settings import ReportSettings
from kharness.report.statistics import (
    MOST_SEEDS,
    Difference,
    Interval,
    group_size_needed,
    holm,
    paired,
    pairs_needed,
    simultaneous_level,
    welch,
)
from kharness.report.summary import Cell, Variant, why_incomplete

# Statuses of runs that neither completed nor wait, run or were stopped on request.
_BAD_ENDS = ("failed", "killed", "missing", "timeout", "unfinished", "unreadable")


class Verdict(StrEnum):
    """Of a variant, compared with its baseline."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "no difference shown"
    NOT_COMPARABLE = "not comparable"
    UNDECIDED = "undecided"
    """There are too few numbers, or numbers without spread: no statistics are possible."""


@dataclass(frozen=True)
class Comparison:
    """A variant against its baseline. Differences are variant minus baseline, in the metric's unit."""

    variant: str
    baseline: str
    metric: Metric
    verdict: Verdict
    reason: str
    """Why it is neither better nor worse; empty for those."""
    method: str
    """`paired` by seed, `welch` where no seed is common to both, empty without statistics."""
    seeds: tuple[str, ...]
    """Common to both."""
    left_out: tuple[str, ...]
    """Runs without a partner of the same seed, by name."""
    counts: tuple[int, int]
    """Numbers used of the variant and of the baseline."""
    difference: float | None
    interval: Interval | None
    """All intervals of one table hold at once with the report's confidence (Bonferroni)."""
    effect: float | None
    p: float | None
    p_holm: float | None
    holm_disagrees: bool
    """Whether Holm's correction, which is less strict than the intervals, alone would show a difference."""
    more_seeds: int | None
    """For NOT_SHOWN: as many more would be needed; None if that makes more than MOST_SEEDS."""
    budgets: tuple[Budget, Budget]
    failures: tuple[str, ...]
    """Planned runs that no number comes from, with the reason."""
    failed: tuple[int, int]
    """Those of them that ended badly, of the variant and of the baseline; known failures do not count."""


@dataclass(frozen=True)
class _Prepared:
    """A comparison as it stands without statistics."""

    comparison: Comparison
    difference: Difference | None = None
    """To decide it by; None where it is decided, or cannot be."""
    runs: tuple[Sequence[RunData], Sequence[RunData]] = ((), ())
    """That are compared, of the variant and of the baseline."""


def judge(
    pairs: Sequence[tuple[Variant, Variant]], metric: Metric, settings: ReportSettings
) -> Sequence[Comparison]:
    """Compare each variant with its baseline, corrected for the number of comparisons that were possible."""
    prepared = [_prepare(variant, baseline, metric) for variant, baseline in pairs]
    ps = {i: one.difference.p for i, one in enumerate(prepared) if one.difference is not None}
    tested = {i: p for i, p in ps.items() if p is not None}
    level = simultaneous_level(settings.confidence, len(tested))
    results = [one.comparison for one in prepared]
    for i, p_holm in zip(tested, holm([*tested.values()]), strict=True):
        decided = _decide(prepared[i], level, p_holm)
        disagrees = p_holm < 1 - settings.confidence and decided.verdict is Verdict.NOT_SHOWN
        decided = replace(decided, holm_disagrees=disagrees)
        results[i] = _with_equal_time(decided, prepared[i].runs, settings)
    return results


def _prepare(variant: Variant, baseline: Variant, metric: Metric) -> _Prepared:
    """Which runs are compared, and whether they can be."""
    ours, theirs = _numbers(variant, metric), _numbers(baseline, metric)
    by_seed, by_seed_of_baseline = _by_seed(ours), _by_seed(theirs)
    seeds = tuple(seed for seed in by_seed if seed in by_seed_of_baseline)
    if seeds:
        used = [by_seed[seed] for seed in seeds], [by_seed_of_baseline[seed] for seed in seeds]
    else:
        used = ours, theirs
    first = [number for _, number in used[0]]
    second = [number for _, number in used[1]]
    chosen = {id(cell) for side in used for cell, _ in side}
    budgets = budget_of([cell.run for cell, _ in used[0]]), budget_of([cell.run for cell, _ in used[1]])
    comparison = Comparison(
        variant=variant.label,
        baseline=baseline.label,
        metric=metric,
        verdict=Verdict.UNDECIDED,
        reason="",
        method="",
        seeds=seeds,
        left_out=tuple(cell.name for cell, _ in [*ours, *theirs] if id(cell) not in chosen),
        counts=(len(first), len(second)),
        difference=None,
        interval=None,
        effect=None,
        p=None,
        p_holm=None,
        holm_disagrees=False,
        more_seeds=None,
        budgets=budgets,
        failures=tuple(_failures(variant, metric) + _failures(baseline, metric)),
        failed=(_failed(variant), _failed(baseline)),
    )
    for side, values in ((variant, first), (baseline, second)):
        if not values:
            return _Prepared(
                replace(comparison, reason=f"no complete run of {side.label} has {metric.title}")
            )
    found = paired(first, second) if seeds else welch(first, second)
    comparison = replace(comparison, difference=found.mean, method="paired" if seeds else "welch")
    unlike = mismatch(*budgets)
    if unlike:
        return _Prepared(replace(comparison, verdict=Verdict.NOT_COMPARABLE, reason=unlike, method=""))
    if found.p is None:
        return _Prepared(_without_spread(comparison, first, second))
    return _Prepared(
        comparison, found, ([cell.run for cell, _ in used[0]], [cell.run for cell, _ in used[1]])
    )


def _without_spread(comparison: Comparison, first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Why no test was possible."""
    if min(comparison.counts) < 2:
        what = "one common seed" if comparison.seeds else "a single run on one side"
        return replace(comparison, method="", reason=f"{what}: chance cannot be told from a difference")
    if comparison.seeds and all(a == b for a, b in zip(first, second, strict=True)):
        return replace(
            comparison,
            verdict=Verdict.NOT_SHOWN,
            method="",
            reason=f"all {len(first)} pairs are exactly equal",
        )
    what = "every pair differs by the same amount" if comparison.seeds else "no side varies between its runs"
    return replace(comparison, method="", reason=f"{what}, so the spread of chance is unknown")


def _decide(prepared: _Prepared, level: float, p_holm: float) -> Comparison:
    comparison, found = prepared.comparison, prepared.difference
    assert found is not None
    interval = found.interval(level)
    decided = replace(comparison, interval=interval, effect=found.effect, p=found.p, p_holm=p_holm)
    if interval is not None and interval.excludes_zero:
        better = (found.mean > 0) == comparison.metric.higher_is_better
        return replace(decided, verdict=Verdict.BETTER if better else Verdict.WORSE)
    if comparison.seeds:
        needed = pairs_needed(found.standardised or 0.0, level)
    else:
        needed = group_size_needed(found.mean, level, found.spreads)
    more = None if needed is None else max(1, needed - min(comparison.counts))
    beyond = f"more than {MOST_SEEDS - min(comparison.counts):,} more seeds"
    number = beyond if more is None else f"{more} more seed{'s' * (more > 1)}"
    return replace(
        decided,
        verdict=Verdict.NOT_SHOWN,
        more_seeds=more,
        reason=f"{number} would be needed to see one of this size",
    )


def _with_equal_time(
    decided: Comparison, runs: tuple[Sequence[RunData], Sequence[RunData]], settings: ReportSettings
) -> Comparison:
    """Time is a budget too: a better result in more of it shows nothing; in less, all the more."""
    if decided.verdict not in (Verdict.BETTER, Verdict.WORSE) or decided.metric.name in COSTS:
        return decided
    ahead, behind = runs if decided.verdict is Verdict.BETTER else reversed(runs)
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


def _numbers(variant: Variant, metric: Metric) -> list[tuple[Cell, float]]:
    found = [(cell, cell.number(metric)) for cell in variant.complete]
    return [(cell, number) for cell, number in found if number is not None]


def _by_seed(numbers: Sequence[tuple[Cell, float]]) -> Mapping[str, tuple[Cell, float]]:
    """Of several runs of one seed the first; a run whose seed is not known has no partner."""
    found: dict[str, tuple[Cell, float]] = {}
    for cell, number in numbers:
        if cell.seed is not None:
            found.setdefault(cell.seed, (cell, number))
    return found


def _failed(variant: Variant) -> int:
    return sum(cell.run.status in _BAD_ENDS and not cell.known_failure for cell in variant.cells)


def _failures(variant: Variant, metric: Metric) -> list[str]:
    lines = []
    for cell in variant.cells:
        if not cell.run.complete:
            lines.append(f"{cell.name}: {why_incomplete(cell)}")
        elif cell.number(metric) is None:
            lines.append(f"{cell.name}: complete without {metric.title}")
    return lines
