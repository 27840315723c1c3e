"""Memory of all GPUs together over time: of one run a layer per GPU, of a matrix a line per run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import INK, PALETTE, SOFT, canvas, notes, nothing_to_draw
from kharness.report.graphs._gpu_lines import (
    MIB_PER_GIB,
    Sampled,
    TimeUnit,
    applies,
    colors,
    legend_width,
    many_variants,
    memory_limit,
    plot_run,
    point_rows,
    sampled,
    time_unit,
    variant_legend,
    variants_of,
    without_samples,
)
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["applies", "draw", "numbers"]

TITLE = "GPU Memory Timeline"

# More layers than this have no names.
MAX_NAMED = 16


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
    runs = [run for run in sampled(summary) if "memory" in run.history.together]
    if not runs:
        return nothing_to_draw(TITLE, summary.title, summary, "no GPU reports its memory")
    unit = time_unit(runs)
    layered = len(summary.cells) == 1
    subtitle = f"{summary.title}{many_variants(runs)}\n"
    subtitle += (
        "memory of all GPUs together: a layer is one GPU"
        if layered
        else "line: memory of all GPUs of one run together"
    )
    capacity = {total for run in runs if (total := _capacity(run))}
    limit, shows_total = memory_limit(
        max(run.history.peak_memory_mb or 0.0 for run in runs), max(capacity, default=None)
    )
    if shows_total:
        subtitle += "   dashed: what they have"
    elif capacity:
        subtitle += f"   what they have lies above the axis: {max(capacity) / MIB_PER_GIB:,.1f} GiB"
    beside = 0.85 if layered else legend_width(runs)
    width = 8.4 + beside
    figure = canvas(width, 3.9, TITLE, subtitle, notes(summary, without_samples(summary)))
    figure.subplots_adjust(right=1 - (0.25 + beside) / width)
    axes = figure.add_subplot()
    if layered:
        _draw_layers(axes, runs[0], unit)
    else:
        of_label = colors(variants_of(runs))
        for run in runs:
            curve = run.history.together["memory"]
            plot_run(
                axes, run, curve, unit, 1 / MIB_PER_GIB, color=of_label[run.variant], zorder=3, alpha=0.85
            )
        variant_legend(figure, axes, runs)
    for total in sorted(capacity):
        axes.axhline(total / MIB_PER_GIB, color=SOFT, lw=1, ls=(0, (4, 3)), zorder=1)
    axes.set_xlim(0, max(run.history.seconds for run in runs) / unit.seconds or 1)
    axes.set_ylim(0, limit)
    axes.set_xlabel(unit.label)
    axes.set_ylabel("memory (GiB)")
    return figure


def _draw_layers(axes: Axes, run: Sampled, unit: TimeUnit) -> None:
    """One GPU on the other; one that is lost, or appears later, has no height while it is not there."""
    import numpy as np

    seconds = np.asarray(run.history.together["memory"].seconds)
    below = np.zeros(len(seconds))
    gpus = [gpu for gpu in run.history.gpus if "memory" in gpu.curves]
    for i, gpu in enumerate(gpus):
        curve = gpu.curves["memory"]
        known = [(s, v) for s, v in zip(curve.seconds, curve.means, strict=True) if not math.isnan(v)]
        times, values = zip(*known, strict=True)
        height = np.interp(seconds, times, values, left=0, right=0) / MIB_PER_GIB
        alpha = 0.75 if i % 2 == 0 else 0.45
        axes.fill_between(seconds / unit.seconds, below, below + height, color=PALETTE[0], alpha=alpha, lw=0)
        axes.plot(seconds / unit.seconds, below + height, color="white", lw=0.7)
        if len(gpus) <= MAX_NAMED:
            middle = below[-1] + height[-1] / 2
            label = gpu.label if height[-1] else f"{gpu.label}: {gpu.state}"
            axes.annotate(
                label,
                (1.01, middle if height[-1] else below[-1]),
                xycoords=("axes fraction", "data"),
                fontsize=8.5,
                color=INK if height[-1] else SOFT,
                va="center" if height[-1] else "bottom",
            )
        below = below + height


def _capacity(run: Sampled) -> float:
    """MiB of all GPUs together, 0 if one does not say."""
    totals = [gpu.total_mb for gpu in run.history.gpus]
    return math.fsum(total for total in totals if total) if all(totals) else 0.0
