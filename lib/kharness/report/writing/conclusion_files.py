"""Conclusions as the summary's files hold them: JSON, columns of the CSV, sections of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from enum import Enum
from typing import Any, TypeVar

from kharness.config.writing import attributes, in_markdown, list_item
from kharness.report.judging.conclusions import Conclusions
from kharness.report.judging.interim_looks import FEWEST
from kharness.report.judging.judgment import Comparison
from kharness.report.judging.pareto import Front
from kharness.report.judging.profiles import R_MAX, Profile, WorkloadTimes, finite
from kharness.report.judging.sentences import comparison_sentence, difference_words, explanation, p_words
from kharness.report.writing.conclusion_tables import (
    EFFECTS,
    costs_table,
    effects_table,
    profiles_table,
    times_table,
    unmeasured_costs,
    verdicts_table,
)

CONCLUSION_COLUMNS = (
    *("compared_with", "verdict", "difference", "difference_low", "difference_high"),
    *("effect_size", "p", "p_holm", "more_seeds", "target_step", "target_seconds", "fronts"),
    *("p_adjusted", "level", "method", "smallest_difference"),
)

FRONT = ("workload", "quality", "cost", "members", "dominated", "unmeasured", "judged")


def conclusions_json(conclusions: Conclusions) -> dict[str, object]:
    """Differences are variant minus baseline, in the metric's unit; a time that was never reached is null."""
    return {
        "confidence": conclusions.settings.confidence,
        "equivalence_margin": conclusions.settings.margin or None,
        "seeds_planned": conclusions.settings.seeds_planned or None,
        "decisive_metric": conclusions.metric.name,
        "decisive_metric_note": conclusions.metric_note or None,
        "decisive_metrics": {workload: metric.name for workload, (metric, _) in conclusions.metrics.items()},
        "baseline": conclusions.baseline or None,
        "explanation": explanation(conclusions) if conclusions.comparisons else None,
        "comparisons": [_comparison_json(comparison) for comparison in conclusions.comparisons],
        "main_effects": [
            {**_comparison_json(effect), "over": list(effect.over)} for effect in conclusions.effects
        ],
        "not_compared": list(conclusions.notes),
        "time_to_target": [_times_json(times) for times in conclusions.times],
        "performance_profiles": [_profile_json(profile) for profile in conclusions.profiles],
        "pareto": [attributes(front, *FRONT) for front in conclusions.fronts],
    }


def conclusion_values(conclusions: Conclusions, variant: str) -> Sequence[object]:
    """Return one variant's values in the order of the columns; the baseline has no comparison."""
    row: list[object] = [None] * 9
    added: list[object] = [None] * 4
    for comparison in conclusions.comparisons:
        if comparison.variant == variant:
            low, high = _bounds(comparison)
            row = [comparison.baseline, str(comparison.verdict), comparison.difference, low, high]
            row += [comparison.effect, comparison.p, comparison.p_holm, comparison.more_seeds]
            level = comparison.interval.level if comparison.interval else None
            added = [comparison.p_adjusted, level, comparison.method or None, comparison.smallest]
    times = [of for workload in conclusions.times for of in workload.variants if of.variant == variant]
    row += [finite(times[0].median_step), finite(times[0].median_seconds)] if times else [None, None]
    fronts = " ".join(front.cost for front in conclusions.fronts if variant in front.members)
    return [*row, fronts or None, *added]


def conclusions_markdown(conclusions: Conclusions) -> Sequence[str]:
    """Who is better, how soon each gets to the target, and what it costs."""
    parts = []
    if conclusions.comparisons or conclusions.notes:
        parts.append("## Who is better?")
        if conclusions.comparisons:
            parts.append(explanation(with_texts(conclusions, in_markdown)))
        for part in conclusions.by_metric:
            if part.comparisons:
                several = len(part.comparisons) < len(conclusions.comparisons)
                parts += [f"In {in_markdown(part.metric.title)}:"] if several else []
                parts.append(verdicts_table(part).markdown())
            if part.effects:
                parts += [EFFECTS, effects_table(part).markdown()]
            if part.metric_note:
                parts.append(f"Note: {in_markdown(part.metric_note)}.")
        compared = [*conclusions.comparisons, *conclusions.effects]
        lines = [comparison_sentence(with_texts(one, in_markdown)) for one in compared]
        lines += [f"{in_markdown(note)}." for note in conclusions.notes]
        parts.append("\n".join(map(list_item, lines)))
    if any(len(times.variants) > 1 for times in conclusions.times):
        parts.append("## Time to target")
        for times in conclusions.times:
            parts += [_times_caption(times), times_table(times).markdown()]
    if conclusions.profiles:
        parts += [_profiles_caption(conclusions), profiles_table(conclusions).markdown()]
    return [*parts, *_costs_markdown(conclusions)]


def _times_caption(times: WorkloadTimes) -> str:
    target, chosen_by = in_markdown(str(times.target)), in_markdown(times.target.chosen_by)
    return (
        f"{in_markdown(times.workload)}: the first validation with {target} (target: {chosen_by}); "
        "medians over seeds. A run that ended without it, diverged, or ran out of memory or time counts as "
        "infinite; one that was stopped or killed from outside does not count. Ranks are those that a "
        "variant may truly have, by the intervals of all pairs; they are no verdict on who is better."
    )


def _profiles_caption(conclusions: Conclusions) -> str:
    count = len(conclusions.times)
    meaning = (
        "with one workload it says no more than the ratio"
        if count == 1
        else f"over {count} workloads, 1 for the fastest on each"
    )
    return (
        f"Score: the area under the performance profile up to {R_MAX:g} times the fastest, as AlgoPerf has "
        f"it; {meaning}."
    )


def _costs_markdown(conclusions: Conclusions) -> Sequence[str]:
    parts: list[str] = []
    fronts_of = conclusions.fronts_of
    for workload, fronts in fronts_of.items():
        variants = len(fronts[0].points) + len(fronts[0].unmeasured)
        if variants < 2 or not any(front.points for front in fronts):
            continue
        parts += [f"{in_markdown(workload)}:"] if len(fronts_of) > 1 else []
        parts.append(costs_table(fronts).markdown())
        missing = unmeasured_costs(fronts)
        if missing:
            parts.append(f"Not known: {', '.join(missing)}.")
    if not parts:
        return []
    return ["## Quality and cost", *parts, front_meaning(conclusions.fronts)]


def front_meaning(fronts: Sequence[Front]) -> str:
    """Return what it takes to be beaten, and whether these seeds could show it."""
    on = "On a front (Pareto) is what no other variant is shown to beat"
    if not any(front.judged for front in fronts):
        return f"{on}: with fewer than {FEWEST} seeds nothing is shown, and all are on it."
    return (
        f"{on}. Beaten is what another one is shown to be better than, in quality or in that cost, and by "
        "its means at least as good as in the other; shown as above, and pairs that are not compared above "
        "by the intervals of all pairs."
    )


def _comparison_json(comparison: Comparison) -> dict[str, object]:
    low, high = _bounds(comparison)
    return {
        **attributes(comparison, "variant", "baseline"),
        "metric": comparison.metric.name,
        "verdict": str(comparison.verdict),
        "reason": comparison.reason or None,
        "method": comparison.method or None,
        **attributes(comparison, "seeds", "left_out", "set_aside"),
        "tied_seeds": comparison.ties,
        "chosen_of_pairs": comparison.chosen_of or None,
        "num_values": comparison.counts,
        "difference": comparison.difference,
        "low": low,
        "high": high,
        "level": comparison.interval.level if comparison.interval else None,
        "effect_size": comparison.effect,
        **attributes(comparison, "p", "p_holm", "p_adjusted"),
        "degrees_of_freedom": comparison.degrees,
        "smallest_difference": comparison.smallest,
        "num_images": comparison.images,
        "test_set_limit": comparison.limit,
        **attributes(comparison, "more_seeds", "more_seeds_range", "planned_seeds", "next_look", "shown_at"),
        "looks": [
            {"seeds": look.seeds, **attributes(look.interval, "low", "high", "level")}
            for look in comparison.looks
        ],
        "budget_unit": comparison.budget_unit,
        "budgets": [
            {**attributes(budget, "steps", "samples", "tokens"), "training_seconds": budget.seconds}
            for budget in comparison.budgets
        ],
        "failures": comparison.failures,
        "words": None if comparison.difference is None else difference_words(comparison),
        "p_words": None if comparison.p_adjusted is None else p_words(comparison.p_adjusted),
        "sentence": comparison_sentence(comparison),
    }


def _times_json(times: WorkloadTimes) -> dict[str, object]:
    return {
        "workload": times.workload,
        "target": str(times.target),
        "chosen_by": times.target.chosen_by,
        "variants": [
            {
                "variant": variant.variant,
                "median_step": finite(variant.median_step),
                "median_seconds": finite(variant.median_seconds),
                "rank_range": variant.rank or None,
                "runs": [attributes(run, "run", "reached", "step", "seconds") for run in variant.runs],
            }
            for variant in times.variants
        ],
    }


def _profile_json(profile: Profile) -> dict[str, object]:
    """The profile itself follows from the ratios."""
    ratios = {workload: finite(ratio) for workload, ratio in profile.ratios.items()}
    return {"variant": profile.variant, "score": profile.score, "ratios": ratios}


def _bounds(comparison: Comparison) -> tuple[float | None, float | None]:
    interval = comparison.interval
    return (interval.low, interval.high) if interval else (None, None)


Said = TypeVar("Said", Comparison, Conclusions)


def with_texts(said: Said, escape: Callable[[str], str]) -> Said:
    """The same with every text and every tuple of texts escaped; members of enumerations are our own."""
    return replace(said, **{one.name: _escaped(getattr(said, one.name), escape) for one in fields(said)})


def _escaped(value: Any, escape: Callable[[str], str]) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        return escape(value)
    if isinstance(value, tuple):
        return tuple(_escaped(one, escape) for one in value)
    return value
