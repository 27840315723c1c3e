"""Conclusions as tables: verdicts, times to the target, profiles, and quality next to what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from kharness.config.writing import ABSENT, Table
from kharness.report.judging.aggregates import REPETITIONS, Aggregate, ScoreEstimate
from kharness.report.judging.conclusions import Conclusions
from kharness.report.judging.judgment import Comparison
from kharness.report.judging.pareto import Front
from kharness.report.judging.profiles import WorkloadTimes
from kharness.report.judging.sentences import difference_words, interval_words, p_words, unit_words
from kharness.report.metrics import Metric, metric_named

EFFECTS = (
    "Main effects: a level of one axis against the baseline's, as the mean over the levels of the others."
)


def verdicts_table(conclusions: Conclusions) -> Table:
    """Each comparison as a row of numbers, as papers show them; differences are variant minus baseline."""
    return _table_of(conclusions.comparisons, conclusions.metric, "variant")


def effects_table(conclusions: Conclusions) -> Table:
    """The same of main effects."""
    named = [replace(one, variant=f"{one.variant} vs {one.baseline}") for one in conclusions.effects]
    return _table_of(named, conclusions.metric, "main effect")


def _table_of(comparisons: Sequence[Comparison], metric: Metric, what: str) -> Table:
    rows = []
    for one in comparisons:
        counts = str(one.counts[0]) if one.seeds else f"{one.counts[0]} + {one.counts[1]}"
        counts += f" of {one.counts[0] + len(one.ties)}" if one.seeds and one.ties else ""
        rows.append(
            [
                one.variant,
                one.verdict.value,
                ABSENT
                if one.difference is None
                else difference_words(replace(one, interval=None), unit=False),
                ABSENT if one.interval is None else interval_words(one.interval, metric),
                ABSENT if one.p_adjusted is None else p_words(one.p_adjusted),
                ABSENT if one.effect is None else f"{one.effect:.2f}",
                counts,
            ]
        )
    unit = unit_words(metric)
    difference = f"difference{f' ({unit})' if unit else ''}"
    header = [what, "verdict", difference, "interval", "p (all looks)", "effect size", "seeds"]
    return Table(header, rows, text_columns=2)


def aggregates_table(found: Sequence[Aggregate]) -> Table:
    """Return each variant's scores over all workloads, with their intervals."""
    rows = [
        [
            one.variant,
            f"{one.runs}",
            *map(_estimate_words, (one.iqm, one.optimality_gap)),
            ABSENT if one.improvement is None else _estimate_words(one.improvement),
        ]
        for one in found
    ]
    return Table(["variant", "runs", "IQM", "optimality gap", "P(improvement)"], rows, text_columns=1)


def aggregates_caption(baseline: str, confidence: float) -> str:
    """Return what the columns mean, and how their intervals were made."""
    return (
        f"Scores relative to the mean of {baseline} on each workload, which is 1; higher is better. IQM is "
        "the mean of the middle half of all runs, the optimality gap the mean shortfall from 1, and "
        f"P(improvement) the probability that a run beats one of {baseline}. In parentheses "
        f"{confidence * 100:g} % intervals of the stratified bootstrap ({REPETITIONS:,} resamples, "
        "percentiles), as Agarwal et al. (2021) define them; each holds alone."
    )


def _estimate_words(one: ScoreEstimate) -> str:
    return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"


def times_table(times: WorkloadTimes) -> Table:
    """When each variant's median run reached the target."""
    rows = []
    for variant in times.variants:
        over = [run for run in variant.runs if run.reached is not None]
        reached = sum(bool(run.reached) for run in over)
        row = [variant.variant, f"{reached}/{len(over)}", _time(variant.median_step, 0)]
        row.append(_time(variant.median_seconds, 1))
        rows.append([*row, ABSENT if variant.rank is None else rank_words(variant.rank)])
    return Table(["variant", "reached", "median step", "median training (s)", "rank"], rows, text_columns=1)


def rank_words(rank: tuple[int, int]) -> str:
    """`1 to 3`: those that it may truly have."""
    first, last = rank
    return f"{first}" if first == last else f"{first} to {last}"


def profiles_table(conclusions: Conclusions) -> Table:
    """Each variant's score, and its time over that of the fastest on every workload."""
    workloads = [times.workload for times in conclusions.times]
    rows = [
        [
            profile.variant,
            f"{profile.score:.3f}",
            *(_time(profile.ratios.get(workload, math.inf), 2) for workload in workloads),
        ]
        for profile in conclusions.profiles
    ]
    header = ["variant", "score", *(f"time / fastest, {workload}" for workload in workloads)]
    return Table(header, rows, text_columns=1)


def costs_table(fronts: Sequence[Front]) -> Table:
    """Return one workload's table: mean quality, every measured cost, and the fronts a variant is on."""
    quality = metric_named(fronts[0].quality)
    measured = [front for front in fronts if front.points]
    variants = [*fronts[0].points, *fronts[0].unmeasured]
    costs = [metric_named(front.cost) for front in measured]
    rows = []
    for variant in variants:
        known = [front.points.get(variant) for front in measured]
        qualities = [point[0] for point in known if point]
        row = [variant, f"{qualities[0] * quality.scale:.{quality.digits}f}" if qualities else ABSENT]
        for point, cost in zip(known, costs, strict=True):
            row.append(f"{point[1] * cost.scale:.{cost.digits}f}" if point else ABSENT)
        on = [
            _cost_words(cost) for front, cost in zip(measured, costs, strict=True) if variant in front.members
        ]
        rows.append([*row, ", ".join(on) or ABSENT])
    header = ["variant", quality.label, *(cost.label for cost in costs), "Pareto-optimal in"]
    return Table(header, rows, text_columns=1)


def unmeasured_costs(fronts: Sequence[Front]) -> Sequence[str]:
    """Kinds of cost that no variant has."""
    return [_cost_words(metric_named(front.cost)) for front in fronts if not front.points]


def _cost_words(cost: Metric) -> str:
    return "time" if cost.name == "training_seconds" else cost.title


def _time(time: float | None, digits: int) -> str:
    """A dash for unknown, `never` for infinite."""
    if time is None:
        return ABSENT
    return f"{time:,.{digits}f}" if math.isfinite(time) else "never"
