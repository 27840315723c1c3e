"""Training time until a validation first reaches the target, for every run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import ALARM, PALETTE, SOFT, canvas, dress_rows, notes, nothing_to_draw
from kharness.report.judging.profiles import RunTime, VariantTimes, WorkloadTimes
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Time to target"
# More rows than this are a table, and that is the CSV.
MAX_ROWS = 120


@dataclass(frozen=True)
class _Unit:
    """The unit in which the time to the target is measured: seconds or steps."""

    title: str
    axis: str
    of_run: Callable[[RunTime], float | None]
    median: Callable[[VariantTimes], float | None]

    def of_runs(self, variant: VariantTimes) -> Sequence[float]:
        return [found for run in variant.runs if run.reached and (found := self.of_run(run)) is not None]

    def words(self, median: float | None) -> str:
        if median is None:
            return "-"
        if not math.isfinite(median):
            return "never"
        if self is STEPS:
            return f"{median:,.0f}"
        return f"{median:,.1f} s" if median >= 10 else f"{median:.2f} s"


SECONDS = _Unit(
    "Time to target (s)",
    "training time until the target (s)",
    lambda run: run.seconds,
    lambda of: of.median_seconds,
)
STEPS = _Unit("Steps to target", "steps until the target", lambda run: run.step, lambda of: of.median_step)


def numbers(summary: Summary) -> Numbers:
    """One row per run: when it reached the target; no time where it did not, or is not over."""
    return Numbers(
        ["workload", "target", "variant", "run", "reached", "global_step", "seconds"],
        [
            [
                *(times.workload, str(times.target), variant.variant, run.run),
                *({True: "yes", False: "no", None: "unknown"}[run.reached], run.step, run.seconds),
            ]
            for times in summary.conclusions.times
            for variant in times.variants
            for run in variant.runs
        ],
    )


def draw(summary: Summary) -> Figure:
    unit, times = unit_of(summary)
    if not times:
        return nothing_to_draw(TITLE, summary.title, summary, "no run has reached a target yet")
    extra = notes(summary, [])
    if unit is STEPS:
        extra.append("in steps: no time counts, none was recorded or other work kept the processors busy")
    counts = [len(one.variants) for one in times]
    if sum(counts) > MAX_ROWS:
        extra.append(f"at most {MAX_ROWS} of {sum(counts)} variants; the CSV has all")
    rows = max(1, MAX_ROWS // len(times))
    shown = [replace(one, variants=one.variants[:rows]) for one in times]
    longest = max(len(variant.variant) for one in shown for variant in one.variants)
    gutter = 0.55 + 0.078 * longest
    width = 8.4 + gutter
    heights = [0.3 + 0.27 * len(one.variants) for one in shown]
    subtitle = (
        f"{summary.title}{'' if len(shown) > 1 else f'   {_target_words(shown[0])}'}\n"
        "dot: one run   bar: median of the runs   x: over without having reached the target"
    )
    figure = canvas(width, sum(heights) + 0.85 * (len(shown) - 1), TITLE, subtitle, extra)
    figure.subplots_adjust(left=gutter / width, right=1 - 1.15 / width, hspace=0.85 / fmean(heights))
    if len(shown) > 1:
        figure.subplots_adjust(top=1 - 1.15 / figure.get_figheight())  # room for the first title
    grid = figure.add_gridspec(len(shown), 1, height_ratios=heights)
    for i, one in enumerate(shown):
        axes = figure.add_subplot(grid[i])
        if len(shown) > 1:
            axes.set_title(f"{one.workload}   {_target_words(one)}", fontsize=9, loc="left", pad=5)
        _draw_workload(axes, one, unit)
        axes.set_xlabel(unit.axis if one is shown[-1] else "")
    return figure


def unit_of(summary: Summary) -> tuple[_Unit, list[WorkloadTimes]]:
    """Return seconds, or steps where no time counts, and the workloads on which a run reached its target."""
    unit = next((unit for unit in (SECONDS, STEPS) if _reached(summary, unit)), SECONDS)
    return unit, _reached(summary, unit)


def _reached(summary: Summary, unit: _Unit) -> list[WorkloadTimes]:
    return [one for one in summary.conclusions.times if any(unit.of_runs(v) for v in one.variants)]


def _draw_workload(axes: Axes, times: WorkloadTimes, unit: _Unit) -> None:
    highest = max(max(unit.of_runs(variant)) for variant in times.variants if unit.of_runs(variant))
    beyond = 1.07 * highest
    right = axes.get_yaxis_transform()
    for y, variant in enumerate(times.variants):
        color = PALETTE[0]
        reached = unit.of_runs(variant)
        missed = sum(run.reached is False for run in variant.runs)
        axes.plot(reached, [y] * len(reached), "o", ms=5.5, color=color, alpha=0.55, mec="none", zorder=3)
        if missed:
            axes.plot([beyond], [y], marker="x", ms=6, mew=1.5, color=ALARM, zorder=3)
            if len(variant.runs) > 1:
                label = f"{missed} of {len(variant.runs)}"
                axes.text(1.012 * beyond, y, f" {label}", va="center", fontsize=8, color=ALARM)
        median = unit.median(variant)
        if median is not None and math.isfinite(median):
            axes.plot([median, median], [y - 0.32, y + 0.32], color=color, lw=2.4, zorder=4)
        axes.text(1.11, y, unit.words(median), transform=right, ha="right", va="center", fontsize=8.5)
    axes.text(1.11, -0.75, "median", transform=right, ha="right", va="bottom", fontsize=8, color=SOFT)
    dress_rows(axes, [variant.variant for variant in times.variants])
    # From zero, so that lengths compare as times do.
    axes.set_xlim(0, 1.12 * highest)


def _target_words(times: WorkloadTimes) -> str:
    return f"{times.target}, {times.target.chosen_by}"
