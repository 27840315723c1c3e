"""Performance profiles: the share of workloads on which a variant is within a factor of the fastest."""

from __future__ import annotations

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import figure_of
from kharness.report.judging.profiles import finite
from kharness.report.plots.cost_plots import profile
from kharness.report.summary import Summary


def applies(summary: Summary) -> bool:
    """Whether there are several workloads."""
    return len(summary.conclusions.metrics) > 1


def numbers(summary: Summary) -> Numbers:
    """Each variant's score, and its time to target on each workload over that of the fastest there."""
    profiles = [one for one in summary.conclusions.profiles if len(one.ratios) > 1]
    workloads = sorted({workload for one in profiles for workload in one.ratios})
    return Numbers(
        ["variant", "score", *(f"ratio on {workload}" for workload in workloads)],
        [
            [
                one.variant,
                one.score,
                *(finite(one.ratios.get(workload)) for workload in workloads),
            ]
            for one in profiles
        ],
    )


def draw(summary: Summary) -> Figure:
    """Return a line per variant."""
    nothing = "a profile needs several workloads (models, datasets) and variants, and all runs over"
    return figure_of(summary, "Performance profile", profile(summary.conclusions), nothing=nothing)
