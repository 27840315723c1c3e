"""Draw all conclusions from a summary: verdicts, main effects, time to target, profiles and Pareto fronts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.config.make.typed import typed_setting
from kharness.report.collection import CellResult, Collection, Variant
from kharness.report.judging.all_pairs import Chosen, Pairs, all_pairs
from kharness.report.judging.baseline import WORKLOAD_AXES, baseline_of, is_within, planned_baseline
from kharness.report.judging.factorial import Cell
from kharness.report.judging.images import images_behind
from kharness.report.judging.judgment import Comparison, Verdict, judge
from kharness.report.judging.main_effects import cells_of, main_effects
from kharness.report.judging.pairing import own_end
from kharness.report.judging.pareto import Front, front
from kharness.report.judging.profiles import (
    Profile,
    Target,
    VariantTimes,
    WorkloadTimes,
    chosen_target,
    parse_target,
    profiles,
    time_to_target,
    variant_times,
)
from kharness.report.judging.statistics import Interval, mean_interval
from kharness.report.metrics import METRICS, Metric, metric_named, of_split
from kharness.report.runs import fields_in
from kharness.report.settings import ReportSettings
from monitoring.callbacks.logged import recorded_name
from monitoring.counts import listed


@dataclass(frozen=True)
class Conclusions:
    """All conclusions of a report, computed from the summary alone."""

    settings: ReportSettings
    metric: Metric
    """Metric that decides the verdicts; that of the first workload if `by_metric` has several."""
    metric_note: str
    """Why it is not the requested metric; empty if it is."""
    metrics: Mapping[str, tuple[Metric, str]]
    """Deciding metric of each workload, with its note."""
    baseline: str
    """Description of the baseline; empty if nothing is compared."""
    intervals: Mapping[str, Mapping[str, Interval | None]]
    """Confidence interval of each variant's mean, by variant and metric; each holds alone, not
    simultaneously."""
    comparisons: Sequence[Comparison]
    effects: Sequence[Comparison]
    """Main effects of a factorial matrix."""
    times: Sequence[WorkloadTimes]
    """Times to the target, one entry per workload."""
    profiles: Sequence[Profile]
    """Performance profiles; empty with fewer than two variants, or while a run is not over."""
    fronts: Sequence[Front]
    """One Pareto front per workload and kind of cost."""
    notes: Sequence[str]
    """Comparisons that could not be made."""

    @property
    def fronts_of(self) -> Mapping[str, Sequence[Front]]:
        """The fronts by workload."""
        found: dict[str, list[Front]] = {}
        for one in self.fronts:
            found.setdefault(one.workload, []).append(one)
        return found

    @property
    def by_metric(self) -> Sequence[Conclusions]:
        """One part per deciding metric, with the comparisons it decides; the notes are in the last part."""
        notes: dict[str, dict[str, None]] = {}
        for metric, note in self.metrics.values():
            notes.setdefault(metric.name, {})[note] = None
        parts = [
            replace(
                self,
                metric=metric_named(name, self.settings.better),
                metric_note="; ".join(filter(None, of_metric)),
                comparisons=[one for one in self.comparisons if one.metric.name == name],
                effects=[one for one in self.effects if one.metric.name == name],
                notes=[],
            )
            for name, of_metric in notes.items()
        ]
        return [*parts[:-1], replace(parts[-1], notes=self.notes)] if len(parts) > 1 else [self]


# What decides where nobody has named a metric: the first that a complete run has.
UNNAMED = ("test_accuracy", "test_loss", "val_accuracy", "val_loss", "train_loss")


def conclude(summary: Collection) -> Conclusions:
    """Compute all conclusions; raise ReportError for an impossible metric, baseline or target."""
    baseline = baseline_of(summary)
    workloads = workloads_of(summary)
    metrics = {
        name: decisive_metric([cell for variant in variants for cell in variant.cells], summary.settings)
        for name, variants in workloads.items()
    }
    metric, metric_note = next(iter(metrics.values()), decisive_metric([], summary.settings))
    of_variant = {
        variant.label: metrics[name][0] for name, variants in workloads.items() for variant in variants
    }
    settings = summary.settings
    # Ranks and fronts select among all pairs after seeing results, so workloads share one error rate by their
    # number of pairs.
    family = max(1, Chosen([*workloads.values()]).family)
    parts = {name: math.comb(len(variants), 2) / family for name, variants in workloads.items()}
    times = _times(settings, workloads, metrics, parts)
    unknown = _unknown_metric(summary) if baseline.pairs else ""
    pairs = [] if unknown else baseline.pairs
    judged = judge(
        pairs,
        [of_variant[variant.label] for variant, _ in pairs],
        settings,
        main_effects(pairs),
        chosen_after_looking(summary, pairs),
    )
    comparisons = [one for one in judged if not one.over]
    return Conclusions(
        settings=settings,
        metric=metric,
        metric_note=metric_note,
        metrics=metrics,
        baseline=baseline.words,
        intervals={
            variant.label: _intervals(variant, summary, [found for found, _ in metrics.values()])
            for variant in summary.variants
        },
        comparisons=comparisons,
        effects=[one for one in judged if one.over],
        times=times,
        profiles=_profiles(summary, times),
        fronts=[
            found
            for workload, variants in workloads.items()
            if metrics[workload][0].higher_is_better is not None
            for found in _fronts(
                workload, variants, metrics[workload][0], comparisons, settings, parts[workload]
            )
        ],
        notes=[*baseline.notes, *[unknown] * bool(unknown)],
    )


def chosen_after_looking(summary: Collection, pairs: Sequence[tuple[Variant, Variant]]) -> Chosen | None:
    """Return the family that these pairs of one matrix were selected from; None if they were planned, or span
    several matrices.
    """
    if not is_within(pairs, summary) or is_within(pairs, planned_baseline(summary)):
        return None
    return Chosen([*workloads_of(summary).values()])


def decisive_metric(cells: Sequence[CellResult], settings: ReportSettings) -> tuple[Metric, str]:
    """Return REPORT_METRIC of the first of the runs; where no complete run has it, the last validation of the
    same kind, with the reason.
    """
    named = _named_metric(cells, settings)
    complete = [cell for cell in cells if cell.run.complete]
    # A script's own name, too, where what it calls so was recorded under another one.
    names = (named or settings.metric, recorded_name(named or settings.metric))
    found = _first_recorded(complete, settings, dict.fromkeys(names))
    asked = found or metric_named(names[0], settings.better)
    if found or not complete:
        return asked, asked.unjudged
    parts = of_split(asked.name)
    instead = metric_named(parts.on("val"), settings.better)
    if parts.split == "test" and any(cell.number(instead) is not None for cell in complete):
        note = f"no run has {asked.name}, so {instead.name} of the last validation decides"
        return instead, "; ".join(filter(None, (note, instead.unjudged)))
    if named:
        return asked, f"no complete run has {asked.name}"
    recorded = _first_recorded(complete, settings)
    return (asked, "") if recorded is None else (recorded, recorded.unjudged)


def _first_recorded(
    cells: Sequence[CellResult], settings: ReportSettings, names: Iterable[str] = UNNAMED
) -> Metric | None:
    """Return the first of the metrics so named that one of the runs has."""
    metrics = (metric_named(name, settings.better) for name in names)
    return next((one for one in metrics if any(cell.number(one) is not None for cell in cells)), None)


def _unknown_metric(summary: Collection) -> str:
    """Return why nothing can be compared; empty if a metric was named or a complete run has one."""
    complete = [cell for cell in summary.cells if cell.run.complete]
    if _named_metric(summary.cells, summary.settings) or _first_recorded(complete, summary.settings):
        return ""
    if not complete:
        return "nothing is compared yet: no run is complete"
    named = typed_setting("CONFIG_REPORT_METRIC=NAME", "--metric NAME")
    return f"nothing is compared: no run has {listed(UNNAMED, 'or')}; {named} names another"


def _named_metric(cells: Sequence[CellResult], settings: ReportSettings) -> str:
    """Return REPORT_METRIC as given, or from the runs' own options, where its default follows the model.

    Empty where nobody has named one, as of a program that is not a training of the tree.
    """
    if settings.metric_given or settings.metric != ReportSettings.metric:
        return settings.metric
    names = [fields_in(cell.run.start, "config").get("REPORT_METRIC") for cell in cells]
    return next((name for name in names if isinstance(name, str) and name), "")


def workloads_of(summary: Collection) -> Mapping[str, Sequence[Variant]]:
    """Group variants by workload: model and dataset."""
    found: dict[str, list[Variant]] = {}
    for variant in summary.variants:
        found.setdefault(_workload(variant, summary), []).append(variant)
    return found


def _workload(variant: Variant, summary: Collection) -> str:
    start = next((cell.run.start for cell in variant.cells if cell.run.start), {})
    configured = fields_in(start, "config").get("MODEL")
    model = variant.values.get("MODEL") or configured or summary.plan.get("model")
    dataset = variant.values.get("DATASET") or fields_in(start, "dataset").get("name")
    return ", ".join(str(part) for part in (model, dataset) if part) or "runs"


def _intervals(
    variant: Variant, summary: Collection, deciding: Sequence[Metric]
) -> Mapping[str, Interval | None]:
    return {
        m.name: mean_interval(variant.numbers(m), summary.settings.confidence)
        for m in {m.name: m for m in (*METRICS, *deciding)}.values()
    }


def _times(
    settings: ReportSettings,
    workloads: Mapping[str, Sequence[Variant]],
    metrics: Mapping[str, tuple[Metric, str]],
    parts: Mapping[str, float],
) -> Sequence[WorkloadTimes]:
    found = []
    for workload, variants in workloads.items():
        target = _target(settings, variants, metrics[workload][0])
        if target is not None:
            of_variants = [
                variant_times(
                    variant.label,
                    [time_to_target(cell.name, cell.seed, cell.run, target) for cell in variant.cells],
                )
                for variant in variants
            ]
            ranked = _ranked(of_variants, variants, settings, parts[workload])
            found.append(WorkloadTimes(workload, target, ranked))
    return found


def _ranked(
    times: Sequence[VariantTimes], variants: Sequence[Variant], settings: ReportSettings, part: float
) -> Sequence[VariantTimes]:
    """Return the times with the ranks that variants may truly have, for those whose runs all reached the
    target.
    """
    # Seconds and steps are never ranked against each other: one unit serves all variants of a workload.
    timed = any(run.seconds is not None for of in times for run in of.runs)
    numbers = {
        of.variant: {
            run.seed: float(found)
            for run in of.runs
            if run.seed is not None and (found := run.seconds if timed else run.step) is not None
        }
        # Those that reached the target are a selection where another one did not.
        if all(run.reached is not False for run in of.runs)
        else {}
        for of in times
    }
    pairs = all_pairs(numbers, _seeds(variants), settings, part=part, cells=_cells(variants))
    return [
        replace(of, rank=pairs.rank_range(of.variant, len(times))) if of.variant in pairs.judged else of
        for of in times
    ]


def _cells(variants: Sequence[Variant]) -> Mapping[str, Cell]:
    return {variant.label: cell for variant, cell in zip(variants, cells_of(variants)[1], strict=True)}


def _seeds(variants: Sequence[Variant]) -> Sequence[str]:
    """Return the seeds that all of them planned."""
    first, *others = [dict.fromkeys(cell.seed for cell in variant.cells) for variant in variants]
    return [seed for seed in first if seed and all(seed in other for other in others)]


def _target(settings: ReportSettings, variants: Sequence[Variant], metric: Metric) -> Target | None:
    if settings.target:
        return parse_target(settings.target, settings.better)
    parts = of_split(metric.name)
    if parts.split == "train":
        return None
    # A target is reached in mid-training, where only validations are measured; the test comes after it.
    runs = [[cell.run for cell in variant.cells] for variant in variants]
    of_validation = metric_named(parts.on("val") if parts.split else metric.name, settings.better)
    return chosen_target(of_validation, runs)


def _profiles(summary: Collection, times: Sequence[WorkloadTimes]) -> Sequence[Profile]:
    """Return performance profiles by seconds; variants of different workloads are the same if their other
    axes agree.
    """
    names = {variant.label: _name_across_workloads(variant, summary) for variant in summary.variants}
    found: dict[str, dict[str, float]] = {}
    for of_workload in times:
        for variant in of_workload.variants:
            # Where no time is known, the variant would look like one that never arrives.
            if variant.median_seconds is None:
                return []
            found.setdefault(names[variant.variant], {})[of_workload.workload] = variant.median_seconds
    reached = any(math.isfinite(time) for of_variant in found.values() for time in of_variant.values())
    return profiles(found) if len(found) > 1 and reached else []


def _name_across_workloads(variant: Variant, summary: Collection) -> str:
    varying = [axis for axis in summary.variant_axes if len(summary.axes[axis]) > 1]
    if not set(varying) & set(WORKLOAD_AXES):
        return variant.label
    others = [
        f"{axis}={variant.values[axis]}"
        for axis in varying
        if axis in variant.values and axis not in WORKLOAD_AXES
    ]
    return " ".join(others) or variant.label


def _costs(variants: Sequence[Variant]) -> Sequence[Metric]:
    """Return the cost metrics: time, memory (of the GPU if one was used), energy and money."""
    gpu = metric_named("peak_gpu_memory")
    on_gpu = any(variant.statistic(gpu).mean is not None for variant in variants)
    names = ["training_seconds", "peak_gpu_memory" if on_gpu else "peak_cpu_memory", "energy_joules", "cost"]
    return [metric_named(name) for name in names]


def _fronts(
    workload: str,
    variants: Sequence[Variant],
    quality: Metric,
    comparisons: Sequence[Comparison],
    settings: ReportSettings,
    part: float,
) -> Sequence[Front]:
    """Return one front per kind of cost, from the comparisons in the report and from all other pairs."""
    better = _better(variants, quality, settings, part)
    # A planned comparison has more power than the same pair among all pairs, and front and table must not
    # disagree.
    planned = {
        (one.variant, one.baseline) if one.verdict is Verdict.BETTER else (one.baseline, one.variant)
        for one in comparisons
        if one.metric == quality and one.verdict in (Verdict.BETTER, Verdict.WORSE)
    }
    found = []
    for cost in _costs(variants):
        cheaper = _better(variants, cost, settings, part)
        values = {v.label: (v.statistic(quality).mean, v.statistic(cost).mean) for v in variants}
        found.append(
            front(
                values,
                workload=workload,
                quality=quality.name,
                cost=cost.name,
                higher_is_better=bool(quality.higher_is_better),
                resolution=(quality.resolution, cost.resolution),
                shown=None
                if better is None and cheaper is None and not planned
                else itertools.chain(planned, better or (), cheaper or ()),
            )
        )
    return found


def _better(
    variants: Sequence[Variant], metric: Metric, settings: ReportSettings, part: float
) -> Pairs | None:
    """Return the pairs (better, worse) that are shown; None if there are too few seeds to show any."""
    numbers = {
        variant.label: {
            cell.seed: number
            for cell in variant.complete
            if cell.seed is not None and (number := cell.number(metric)) is not None
        }
        # Without the runs that ended by themselves, e.g. diverged, the mean of the others would be too good.
        if not any(own_end(cell, metric) for cell in variant.cells)
        else {}
        for variant in variants
    }
    found = all_pairs(
        numbers,
        _seeds(variants),
        settings,
        part=part,
        images=images_behind(metric, [cell for variant in variants for cell in variant.complete]),
        cells=_cells(variants),
    )
    if not found.judged:
        return None
    return found.less.turned() if metric.higher_is_better else found.less
