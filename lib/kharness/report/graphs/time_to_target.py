"""Training time until a validation first reaches the target, for every run."""

from __future__ import annotations

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import MOST_ROWS, figure_of
from kharness.report.plots.cost_plots import STEPS, time_to_target, unit_of
from kharness.report.summary import Summary


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
    """Return a row per variant, the fastest first; a part per workload."""
    unit, times = unit_of(summary)
    in_steps = "in steps: no time counts, none was recorded or other work kept the processors busy"
    return figure_of(
        summary,
        unit.title.removesuffix(" (s)"),
        time_to_target(summary, max(1, MOST_ROWS // max(1, len(times)))),
        nothing="no run has reached a target yet",
        said=[in_steps] if unit is STEPS else [],
    )
