"""Memory of all GPUs together over time: of one run a layer per GPU, of a matrix a line per run."""

from __future__ import annotations

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import figure_of
from kharness.report.plots.gpu_samples import MEMORY, applies, point_rows, sampled, without_samples
from kharness.report.plots.gpu_variants import over_time
from kharness.report.summary import Summary

__all__ = ["applies", "draw", "numbers"]


def numbers(summary: Summary) -> Numbers:
    """The sum over all GPUs that answered, one row per drawn point; a null is a gap in the line."""
    return Numbers(
        ["variant", "run", "seconds", "total_memory_used_mb", "peak_mb"],
        [
            row
            for run in sampled(summary)
            if (curve := run.history.together.get("memory"))
            for row in point_rows([run.variant, run.cell.name], curve)
        ],
    )


def draw(summary: Summary) -> Figure:
    """Return a line per run."""
    plot = over_time(summary, MEMORY)
    return figure_of(
        summary,
        "GPU Memory Timeline",
        [plot] if plot else [],
        nothing="no GPU reports its memory",
        without=without_samples(summary),
    )
