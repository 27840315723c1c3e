"""Quality against its price in time, memory, energy or money; the front is what nothing is shown to beat."""

from __future__ import annotations

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import figure_of
from kharness.report.metrics import metric_named
from kharness.report.plots.cost_plots import prices
from kharness.report.summary import Summary

MOST_PLOTS = 32


def numbers(summary: Summary) -> Numbers:
    """Means of each variant over its complete runs, in the units of the axes."""
    rows: list[list[str | float | None]] = []
    for front in summary.conclusions.fronts:
        quality, cost = metric_named(front.quality), metric_named(front.cost)
        for variant, (good, price) in front.points.items():
            rows.append(
                [
                    *(front.workload, variant, quality.name, good * quality.scale),
                    *(cost.name, price * cost.scale, "yes" if variant in front.members else "no"),
                    front.dominated.get(variant),
                ]
            )
    return Numbers(
        ["workload", "variant", "quality", "quality_value", "cost", "cost_value", "on_front", "beaten_by"],
        rows,
    )


def draw(summary: Summary) -> Figure:
    """Return a plot of each cost that was measured, of one workload after the other."""
    unjudged = "".join({metric.unjudged for metric, _ in summary.conclusions.metrics.values()})
    plots = prices(summary.conclusions.fronts)
    return figure_of(
        summary,
        "Quality and its price",
        plots[:MOST_PLOTS],
        nothing=unjudged or "no complete run has both a result and a cost yet",
        said=[f"the first {MOST_PLOTS} of {len(plots)}; the CSV has all"] if len(plots) > MOST_PLOTS else [],
    )
