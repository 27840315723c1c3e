"""Power and temperature over time: one line per GPU of a single run, one line per run of a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kharness.report.gpu.columns import GpuCurve
from kharness.report.gpu.history import GpuSeries
from kharness.report.graphs import Numbers
from kharness.report.graphs._pictures import figure_of
from kharness.report.plots.gpu_plots import of_run
from kharness.report.plots.gpu_samples import (
    HEAT,
    POWER,
    Sampled,
    applies,
    point_rows,
    sampled,
    without_samples,
)
from kharness.report.plots.gpu_variants import over_time
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["applies", "draw", "numbers"]


@dataclass(frozen=True)
class GpuLine:
    """One line: a GPU, or all GPUs of a run together."""

    run: Sampled
    gpu: GpuSeries | None
    curves: Mapping[str, GpuCurve]


def numbers(summary: Summary) -> Numbers:
    """One row per drawn point of one quantity; an empty GPU is all together: their sum, or the hottest."""
    return Numbers(
        ["variant", "run", "host", "gpu", "quantity", "seconds", "mean", "peak"],
        [
            row
            for line in _lines(summary)
            for of_gpu in [(line.gpu.host, line.gpu.index) if line.gpu else ("", None)]
            for quantity in ("power", "temperature")
            if (curve := line.curves.get(quantity))
            for row in point_rows([line.run.variant, line.run.cell.name, *of_gpu, quantity], curve)
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


def _lines(summary: Summary) -> list[GpuLine]:
    runs = sampled(summary)
    if len(summary.cells) == 1:
        return [GpuLine(run, gpu, gpu.curves) for run in runs for gpu in run.history.gpus]
    return [GpuLine(run, None, run.history.together) for run in runs]
