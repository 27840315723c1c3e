"""What the runs of a summary allow to say: who is better, how soon each gets there, at what price."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.report.collection import CellResult, Collection, Variant
from kharness.report.judging.baseline import WORKLOAD_AXES, baseline_of
from kharness.report.judging.judgement import Comparison, judge
from kharness.report.judging.main_effects import main_effects
from kharness.report.judging.pareto import Front, front
from kharness.report.judging.profiles import (
    Profile,
    Target,
    WorkloadTimes,
    chosen_target,
    parse_target,
    profiles,
    time_to_target,
    variant_times,
)
from kharness.report.judging.statistics import Interval, mean_interval
from kharness.report.metrics import METRICS, Metric, metric_named
from kharness.report.settings import ReportSettings


@dataclass(frozen=True)
class Conclusions:
    """All of it is computed from the summary alone."""

    settings: ReportSettings
    metric: Metric
    """That decides who is better; of the first workload, where `by_metric` has several."""
    metric_note: str
    """Why it is not the requested one; empty if it is."""
    metrics: Mapping[str, tuple[Metric, str]]
    """That of each workload, and its note."""
    baseline: str
    """In words; empty if nothing is compared."""
    intervals: Mapping[str, Mapping[str, Interval | None]]
    """Of each variant's mean, by variant and metric; each holds by itself, not all at once."""
    comparisons: Sequence[Comparison]
    effects: Sequence[Comparison]
    """The main effects of a matrix of several axes that are all combined."""
    times: Sequence[WorkloadTimes]
    """To the target; one entry a workload."""
    profiles: Sequence[Profile]
    """Empty with fewer than two variants, and while a run is not over."""
    fronts: Sequence[Front]
    """One a workload and kind of cost."""
    notes: Sequence[str]
    """What could not be compared."""

    @property
    def by_metric(self) -> Sequence[Conclusions]:
        """One for each metric that decides, with the comparisons that it decides; the last has the notes."""
        notes: dict[str, dict[str, None]] = {}
        for metric, note in self.metrics.values():
            notes.setdefault(metric.name, {})[note] = None
        parts = [
            replace(
                self,
                metric=metric_named(name),
                metric_note="; ".join(filter(None, of_metric)),
                comparisons=[one for one in self.comparisons if one.metric.name == name],
                effects=[one for one in self.effects if one.metric.name == name],
                notes=[],
            )
            for name, of_metric in notes.items()
        ]
        return [*parts[:-1], replace(parts[-1], notes=self.notes)] if len(parts) > 1 else [self]


def conclude(summary: Collection) -> Conclusions:
    """ReportError for a metric, baseline or target that cannot be."""
    baseline = baseline_of(summary)
    workloads = _workloads(summary)
    metrics = {name: _of_workload(variants, summary.settings) for name, variants in workloads.items()}
    metric, metric_note = next(iter(metrics.values()), decisive_metric([], summary.settings))
    of_variant = {
        variant.label: metrics[name][0] for name, variants in workloads.items() for variant in variants
    }
    judged = judge(
        baseline.pairs,
        [of_variant[variant.label] for variant, _ in baseline.pairs],
        summary.settings,
        main_effects(baseline.pairs),
    )
    times = _times(summary.settings, workloads, metrics)
    return Conclusions(
        settings=summary.settings,
        metric=metric,
        metric_note=metric_note,
        metrics=metrics,
        baseline=baseline.words,
        intervals={
            variant.label: _intervals(variant, summary, of_variant[variant.label])
            for variant in summary.variants
        },
        comparisons=[one for one in judged if not one.over],
        effects=[one for one in judged if one.over],
        times=times,
        profiles=_profiles(summary, times),
        fronts=[
            _front(workload, variants, metrics[workload][0], cost)
            for workload, variants in workloads.items()
            for cost in _costs(variants)
        ],
        notes=baseline.notes,
    )


def decisive_metric(cells: Sequence[CellResult], settings: ReportSettings) -> tuple[Metric, str]:
    """REPORT_METRIC of the first of the runs; where no complete one has it, the last validation of the same
    kind, and why.
    """
    asked = metric_named(_configured_metric(cells, settings))
    complete = [cell for cell in cells if cell.run.complete]
    if not complete or any(cell.number(asked) is not None for cell in complete):
        return asked, ""
    instead = metric_named("val_" + asked.name.partition("_")[2])
    if asked.name.startswith("test_") and any(cell.number(instead) is not None for cell in complete):
        return instead, f"no run has {asked.name}, so {instead.name} of the last validation decides"
    return asked, f"no complete run has {asked.name}"


def _configured_metric(cells: Sequence[CellResult], settings: ReportSettings) -> str:
    """As the runs' own options have it, whose default follows the model."""
    configs = [] if settings.metric_given else [cell.run.start.get("config") for cell in cells]
    names = [config.get("REPORT_METRIC") for config in configs if isinstance(config, Mapping)]
    return next((name for name in names if isinstance(name, str) and name), settings.metric)


def _of_workload(variants: Sequence[Variant], settings: ReportSettings) -> tuple[Metric, str]:
    return decisive_metric([cell for variant in variants for cell in variant.cells], settings)


def _workloads(summary: Collection) -> Mapping[str, Sequence[Variant]]:
    """Variants by what they were trained for: model and dataset."""
    found: dict[str, list[Variant]] = {}
    for variant in summary.variants:
        found.setdefault(_workload(variant, summary), []).append(variant)
    return found


def _workload(variant: Variant, summary: Collection) -> str:
    starts = [cell.run.start for cell in variant.cells if cell.run.start]
    config = starts[0].get("config") if starts else None
    dataset = starts[0].get("dataset") if starts else None
    configured = config.get("MODEL") if isinstance(config, Mapping) else None
    model = variant.values.get("MODEL") or configured or summary.plan.get("model")
    name = dataset.get("name") if isinstance(dataset, Mapping) else None
    return ", ".join(str(part) for part in (model, variant.values.get("DATASET") or name) if part) or "runs"


def _intervals(variant: Variant, summary: Collection, metric: Metric) -> Mapping[str, Interval | None]:
    metrics = METRICS if metric in METRICS else (*METRICS, metric)
    return {
        m.name: mean_interval(
            [number for cell in variant.complete if (number := cell.number(m)) is not None],
            summary.settings.confidence,
        )
        for m in metrics
    }


def _times(
    settings: ReportSettings,
    workloads: Mapping[str, Sequence[Variant]],
    metrics: Mapping[str, tuple[Metric, str]],
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
            found.append(WorkloadTimes(workload, target, of_variants))
    return found


def _target(settings: ReportSettings, variants: Sequence[Variant], metric: Metric) -> Target | None:
    if settings.target:
        return parse_target(settings.target)
    kind = metric.name.removeprefix("best_").partition("_")[2]
    runs = [[cell.run for cell in variant.cells] for variant in variants]
    return (
        chosen_target(f"val_{kind}", runs)
        if metric.name.partition("_")[0] in ("test", "val", "best")
        else None
    )


def _profiles(summary: Collection, times: Sequence[WorkloadTimes]) -> Sequence[Profile]:
    """By seconds; a variant is the same one on every workload if its other axis values are."""
    names = {variant.label: _name_across_workloads(variant, summary) for variant in summary.variants}
    found: dict[str, dict[str, float]] = {}
    for of_workload in times:
        for variant in of_workload.variants:
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
    """Time, memory (of the GPU where one was used), energy and money."""
    gpu = metric_named("peak_gpu_memory")
    on_gpu = any(variant.statistic(gpu).mean is not None for variant in variants)
    names = ["training_seconds", "peak_gpu_memory" if on_gpu else "peak_cpu_memory", "energy_joules", "cost"]
    return [metric_named(name) for name in names]


def _front(workload: str, variants: Sequence[Variant], quality: Metric, cost: Metric) -> Front:
    values = {v.label: (v.statistic(quality).mean, v.statistic(cost).mean) for v in variants}
    return front(
        values,
        workload=workload,
        quality=quality.name,
        cost=cost.name,
        higher_is_better=quality.higher_is_better,
        resolution=(quality.resolution, cost.resolution),
    )
