"""Power and temperature over time: one line per GPU of a single run, one line per run of a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kharness.report.gpu.columns import GpuCurve
from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import figure_of
from kharness.report.plots.gpu_plots import of_run
from kharness.report.plots.gpu_samples import (
    HEAT,
    POWER,
    applies,
    point_rows,
    sampled,
    without_samples,
)
from kharness.report.plots.gpu_variants import over_time
from kharness.report.summary import Summary

__all__ = ["applies", "draw", "numbers"]


def numbers(summary: Summary) -> Numbers:
    """One row per drawn point of one quantity; an empty GPU is all together: their sum, or the hottest."""
    return Numbers(
        ["variant", "run", "host", "gpu", "quantity", "seconds", "mean", "peak"],
        [
            row
            for about, curves in _lines(summary)
            for quantity in ("power", "temperature")
            if (curve := curves.get(quantity))
            for row in point_rows([*about, quantity], curve)
        ],
    )


def draw(summary: Summary) -> Figure:
    """Return a line per GPU of a single run, and else a line per run."""
    [cell, *others] = summary.cells
    plots = [over_time(summary, one) if others else of_run(cell, one) for one in (POWER, HEAT)]
    return figure_of(
        summary,
        "GPU Power and Temperature",
        [plot for plot in plots if plot],
        nothing="no GPU reports its power or temperature",
        without=without_samples(summary),
    )


def _lines(summary: Summary) -> Iterator[tuple[list[str | int | None], Mapping[str, GpuCurve]]]:
    """Yield what each line is about, and its curves: a GPU of a single run, else all GPUs of a run."""
    for run in sampled(summary):
        about = run.variant, run.cell.name
        if len(summary.cells) > 1:
            yield [*about, "", None], run.history.together
        else:
            for gpu in run.history.gpus:
                yield [*about, gpu.host, gpu.index], gpu.curves
