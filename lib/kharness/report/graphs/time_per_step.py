"""Time per optimizer step: its spread in every run."""

from __future__ import annotations

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import MOST_ROWS, figure_of
from kharness.report.plots.cost_plots import QUANTILES, spreads_of, time_per_step
from kharness.report.summary import Summary


def numbers(summary: Summary) -> Numbers:
    """Quantiles of the step time of every run, in milliseconds."""
    return Numbers(
        ["variant", "run", "status", "num_steps", *(f"p{q:02}_ms" for q in QUANTILES), "max_ms"],
        [
            [one.variant, one.run, one.status, one.num_steps, *one.quantiles, one.highest]
            for one in spreads_of(summary)
        ],
    )


def draw(summary: Summary) -> Figure:
    """Return a row per variant, the fastest first."""
    drawn = {one.run for one in spreads_of(summary)}
    return figure_of(
        summary,
        "Time per step",
        time_per_step(summary, MOST_ROWS),
        nothing="no run has recorded a time per step yet",
        without=[cell.name for cell in summary.cells if cell.name not in drawn],
    )
