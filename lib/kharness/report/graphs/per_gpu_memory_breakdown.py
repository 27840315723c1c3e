"""Memory of each GPU over time: a panel per GPU, a line per run."""

from __future__ import annotations

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import figure_of
from kharness.report.plots.gpu_samples import applies, point_rows, sampled, without_samples
from kharness.report.plots.gpu_variants import memory_of_each
from kharness.report.summary import Summary

__all__ = ["applies", "draw", "numbers"]


def numbers(summary: Summary) -> Numbers:
    """One row per drawn point; a null is a gap in the line."""
    return Numbers(
        ["variant", "run", "host", "gpu", "seconds", "memory_used_mb", "peak_mb", "memory_total_mb"],
        [
            [*row, gpu.total_mb]
            for run in sampled(summary)
            for gpu in run.history.gpus
            if (curve := gpu.curves.get("memory"))
            for row in point_rows([run.variant, run.cell.name, gpu.host, gpu.index], curve)
        ],
    )


# More panels than this are a table, and that is the CSV.
_MOST_PANELS = 120


def draw(summary: Summary) -> Figure:
    """Return a panel per GPU with a line per run."""
    plots = memory_of_each(summary)
    many = f"the first {_MOST_PANELS} of {len(plots)} GPUs; the CSV has all"
    return figure_of(
        summary,
        "Per-GPU Memory Breakdown",
        plots[:_MOST_PANELS],
        nothing="no GPU reports its memory",
        without=without_samples(summary),
        said=[many] if len(plots) > _MOST_PANELS else [],
    )
