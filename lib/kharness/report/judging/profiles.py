"""Time to a target and performance profiles over workloads, scored as in the AlgoPerf benchmark.

Dahl et al., Benchmarking Neural Network Training Algorithms (arXiv 2306.07179); the rules that are
followed, and the two that cannot be (five tuning trials, held-out workloads), are in docs/statistics.md.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from kharness.report.errors import ReportError
from kharness.report.metrics import Metric, metric_named, of_split
from kharness.report.runs import RunData
from kharness.runs.exit_codes import NON_FINITE, OUT_OF_MEMORY
from kharness.runs.status import FAILED, TIMEOUT
from monitoring.journal.fields.directions import Said, missing_direction

R_MAX = 4.0
"""Ratio to the fastest variant from which a variant scores zero."""

POINTS = 100
"""Number of points on the grid from 1 to R_MAX over which profiles are integrated."""

_TARGET = re.compile(
    r"\s*(?P<metric>[A-Za-z_][\w/.-]*)\s*(?P<sign>>=|<=)\s*(?P<value>[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)\s*",
    re.ASCII,
)
# Ends that are the training's own: without such a cause, a run that did not complete says nothing about
# whether it would have reached its target.
_OWN_CAUSES = (NON_FINITE, OUT_OF_MEMORY)


@dataclass(frozen=True)
class Target:
    """A validation result to be reached."""

    metric: str
    at_least: bool
    """Whether the result has to be at least `value`; at most otherwise."""
    value: float
    chosen_by: str
    """Origin of the target, in words."""

    def reached_by(self, result: float) -> bool:
        return result >= self.value if self.at_least else result <= self.value

    def __str__(self) -> str:
        return f"{self.metric}{'>=' if self.at_least else '<='}{self.value:.6g}"


@dataclass(frozen=True)
class RunTime:
    """The time at which a run first reached the target."""

    run: str
    seed: str | None
    reached: bool | None
    """None if unknown: the run is not over, or was stopped or killed from outside."""
    step: int | None
    seconds: float | None
    """Seconds of training alone, without validation; None if the pace was not recorded."""


@dataclass(frozen=True)
class VariantTimes:
    """Medians over the seeds; infinite if at least half of the runs never reached the target."""

    variant: str
    runs: Sequence[RunTime]
    median_step: float | None
    """None if nothing is known of any run."""
    median_seconds: float | None
    rank: tuple[int, int] | None = None
    """Ranks the variant may truly have, simultaneously for all; None where a run did not reach the target."""


@dataclass(frozen=True)
class WorkloadTimes:
    """Times of all variants of one workload."""

    workload: str
    target: Target
    variants: Sequence[VariantTimes]


@dataclass(frozen=True)
class Profile:
    """For one variant, rho(tau): the fraction of workloads on which it is within tau of the fastest."""

    variant: str
    taus: Sequence[float]
    rho: Sequence[float]
    score: float
    """Mean of rho from 1 to R_MAX: 1 for a variant that is the fastest everywhere."""
    ratios: Mapping[str, float]
    """Time over that of the fastest, by workload; infinite where the target was not reached."""


def parse_target(text: str, said: Said = MappingProxyType({})) -> Target:
    """Parse `val_accuracy>=0.97`; raise ReportError for other forms, for a metric that is not of the
    validation set, and for a direction that is wrong or unknown.
    """
    found = _TARGET.fullmatch(text)
    if not found or not math.isfinite(float(found["value"])):
        raise ReportError(
            f"REPORT_TARGET={text} is not METRIC>=number or METRIC<=number",
            hint="for example val_accuracy>=0.97",
        )
    name, sign, value = found["metric"], found["sign"], float(found["value"])
    if of_split(name).split in ("test", "train"):
        raise ReportError(
            f"REPORT_TARGET={text}: targets are reached on the validation set, and {name} is not of it",
            hint=f"for example {of_split(name).on('val')}{sign}{value:g}",
        )
    at_least, metric = sign == ">=", metric_named(name, said)
    if metric.unjudged:
        raise ReportError(
            f"REPORT_TARGET={text}: which way {name} is better is unknown", hint=missing_direction(name)
        )
    if at_least != metric.higher_is_better:
        other = "<=" if at_least else ">="
        raise ReportError(
            f"REPORT_TARGET={text} is reached by getting worse", hint=f"write {name}{other}{value:g}"
        )
    return Target(name, at_least, value, "REPORT_TARGET")


def chosen_target(metric: Metric, runs_of_variants: Sequence[Sequence[RunData]]) -> Target | None:
    """Return the validation result that every variant's median run reaches: the worst of their medians.

    None if no complete run has the metric, or if its direction is unknown. It is
    chosen from the results, which the report says.
    """
    higher = metric.higher_is_better
    if higher is None:
        return None
    best = max if higher else min
    # for an even number of runs the worse of the middle two, which the better half reaches
    median = statistics.median_low if higher else statistics.median_high
    medians = [
        median(found)
        for runs in runs_of_variants
        if (found := [best(v) for run in runs if run.complete and (v := run.validation(metric.name).values)])
    ]
    if not medians:
        return None
    worst = min(medians) if higher else max(medians)
    return Target(
        metric.name, higher, worst, "the worst variant's median best validation, chosen from the results"
    )


def time_to_target(name: str, seed: str | None, run: RunData, target: Target) -> RunTime:
    """Return the time of the first validation that reaches the target."""
    series = run.validation(target.metric)
    for step, result in zip(series.steps, series.values, strict=True):
        if target.reached_by(result):
            until = seconds_of_steps(run)
            return RunTime(name, seed, True, step, until(step) if until else None)
    # A timeout on a shared machine says nothing: alone, the run might have reached the target in time.
    in_time = run.status == TIMEOUT and not run.crowded
    # Where no runner has recorded a cause, a loss that is not finite is one.
    diverged = run.status == FAILED and run.cause is None and run.nonfinite_records > 0
    never = run.complete or in_time or run.cause in _OWN_CAUSES or diverged
    return RunTime(name, seed, False if never else None, None, None)


def seconds_of_steps(run: RunData) -> Callable[[float], float] | None:
    """Return the function from a step to the seconds of training up to it; None if no time was recorded.

    Each record stands for the steps since the one before it, steps after the last record take its pace.
    Validation and checkpoints do not count (as in AlgoPerf), nor does work that a resumed attempt repeated.
    """
    pace = run.metric("step", "sec_per_step")
    if not pace:
        return None
    steps = np.append(0, np.frombuffer(pace.steps, dtype=np.int64))
    # Added one after the other, as `sum` would, so that the last digit is the same.
    seconds = np.append(0.0, np.cumsum(np.diff(steps) * np.frombuffer(pace.values)))

    def until(step: float) -> float:
        # `steps` has a 0 in front: `before` is the last record before the step, and the pace of that index
        # the one that holds after it
        before = min(int(np.searchsorted(steps[1:], step)), len(pace))
        return float(seconds[before] + (step - steps[before]) * pace.values[min(before, len(pace) - 1)])

    return until


def variant_times(variant: str, runs: Sequence[RunTime]) -> VariantTimes:
    """Return the medians over the runs with a known outcome; a target that was not reached counts as
    infinite.
    """
    over = [run for run in runs if run.reached is not None]
    steps = [math.inf if run.step is None else float(run.step) for run in over]
    timed = [run for run in over if run.seconds is not None or not run.reached]
    seconds = [math.inf if run.seconds is None else run.seconds for run in timed]
    # A run whose pace is unknown would be missing among the fast ones: no median is better than a slow one.
    complete = len(timed) == len(over)
    return VariantTimes(
        variant,
        runs,
        statistics.median(steps) if steps else None,
        statistics.median(seconds) if seconds and complete else None,
    )


def profiles(times: Mapping[str, Mapping[str, float]]) -> Sequence[Profile]:
    """Compute profiles from the median times to target, by variant and workload; a missing one counts as
    infinite.

    The benchmark's convention is kept to the digit: ratios to the fastest variant of each workload, a linear
    grid of POINTS from 1 to R_MAX, trapezoids.
    """
    workloads = sorted({workload for of_variant in times.values() for workload in of_variant})
    fastest = {w: min(of_variant.get(w, math.inf) for of_variant in times.values()) for w in workloads}
    taus = [1 + (R_MAX - 1) * i / (POINTS - 1) for i in range(POINTS)]
    found = []
    for variant, of_variant in times.items():
        ratios = {w: _ratio(of_variant.get(w, math.inf), fastest[w]) for w in workloads}
        rho = [sum(ratio <= tau for ratio in ratios.values()) / len(workloads) for tau in taus]
        steps = zip(taus, taus[1:], rho, rho[1:], strict=False)
        area = sum((right - left) * (a + b) / 2 for left, right, a, b in steps)
        found.append(Profile(variant, taus, rho, area / (R_MAX - 1), ratios))
    return found


def _ratio(time: float, fastest: float) -> float:
    if not math.isfinite(time):
        return math.inf
    return 1.0 if time == fastest else time / fastest


def finite(number: float | None) -> float | None:
    """Return None for an infinite time or ratio (target not reached), as JSON has no such number."""
    return number if number is not None and math.isfinite(number) else None
