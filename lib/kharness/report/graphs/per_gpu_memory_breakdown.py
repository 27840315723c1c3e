"""Memory of each GPU over time: a panel per GPU, a line per run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kharness.report.gpu.history import GpuSeries
from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import INK, MAX_PANELS, SOFT, canvas, label_outer, notes, nothing_to_draw
from kharness.report.graphs._gpu_lines import (
    MIB_PER_GIB,
    Sampled,
    TimeUnit,
    applies,
    colors,
    legend_width,
    many_variants,
    mark_gone,
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

TITLE = "Per-GPU Memory Breakdown"

# Inches of a panel: of so many that they must be small, and of fewer.
MANY, SMALL, LARGE = 16, (2.0, 1.35), (3.3, 2.05)


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


def draw(summary: Summary) -> Figure:
    from matplotlib.ticker import MaxNLocator

    runs = [run for run in sampled(summary) if any("memory" in gpu.curves for gpu in run.history.gpus)]
    if not runs:
        return nothing_to_draw(TITLE, summary.title, summary, "no GPU reports its memory")
    panels: dict[tuple[str, int], list[tuple[Sampled, GpuSeries]]] = {}
    for run in runs:
        for gpu in run.history.gpus:
            panels.setdefault((gpu.host, gpu.index), []).append((run, gpu))
    extra = notes(summary, without_samples(summary))
    if len(panels) > MAX_PANELS:
        extra.append(f"the first {MAX_PANELS} of {len(panels)} GPUs; the CSV has all")
    peak, total = _extremes(list(panels.values()))
    limit, shows_total = memory_limit(peak, total)
    subtitle = f"{summary.title}{many_variants(runs)}\nline: memory in use during one run   "
    subtitle += "dashed: what the GPU has   " if shows_total else "what the GPU has lies above the axis   "
    subtitle += "title: highest value of any sample"
    rows, columns = _grid(min(len(panels), MAX_PANELS))
    panel_width, panel_height = SMALL if len(panels) > MANY else LARGE
    beside = legend_width(runs)
    width = max(panel_width * columns, 6.6) + 1.0 + beside
    figure = canvas(width, panel_height * rows + 0.2, TITLE, subtitle, extra)
    top = 1 - 1.22 / figure.get_figheight()
    right = 1 - (0.25 + beside) / width
    figure.subplots_adjust(hspace=0.34, wspace=0.08, top=top, right=right)
    several_hosts = len({host for host, _ in panels}) > 1
    unit = time_unit(runs)
    ends = max(run.history.seconds for run in runs) / unit.seconds
    drawn: list[Axes] = []
    for i, ((host, index), own) in enumerate(list(panels.items())[:MAX_PANELS]):
        axes = figure.add_subplot(rows, columns, i + 1)
        _draw_panel(axes, own, unit, variants_of(runs), limit)
        axes.set_xlim(-0.01 * ends, 1.02 * ends or 1)
        axes.set_ylim(0, limit)
        axes.tick_params(labelleft=i % columns == 0, labelbottom=False)
        if len(panels) > MANY:
            axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10], prune="upper"))
        name = f"GPU {index} on {host}" if several_hosts else f"GPU {index}"
        axes.set_title(
            _title(name, own), fontsize=9 if panel_width > 3 else 7.5, loc="left", pad=4, color=INK
        )
        drawn.append(axes)
    label_outer(drawn, columns, unit.label.replace(" since the run's first sample", ""), "memory (GiB)")
    variant_legend(figure, drawn[min(columns, len(drawn)) - 1], runs)
    return figure


def _grid(panels: int) -> tuple[int, int]:
    """Rows and columns: 2 x 2 of four, 2 x 4 of eight, 8 x 8 of 64."""
    columns = 8 if panels > MANY else math.ceil(math.sqrt(panels)) if panels <= 6 else 4
    return math.ceil(panels / columns), columns


def _draw_panel(
    axes: Axes, own: list[tuple[Sampled, GpuSeries]], unit: TimeUnit, labels: list[str], limit: float
) -> None:
    of_label = colors(labels)
    total = max((gpu.total_mb for _, gpu in own if gpu.total_mb), default=None)
    if total:
        axes.axhline(total / MIB_PER_GIB, color=SOFT, lw=1, ls=(0, (4, 3)), zorder=1)
    for run, gpu in own:
        curve = gpu.curves.get("memory")
        if curve:
            plot_run(axes, run, curve, unit, 1 / MIB_PER_GIB, color=of_label[run.variant], zorder=3)
        if len(own) == 1:
            if curve:
                seconds = [second / unit.seconds for second in curve.seconds]
                used = [value / MIB_PER_GIB for value in curve.means]
                axes.fill_between(seconds, used, color=of_label[run.variant], alpha=0.18, lw=0, zorder=2)
            for second in gpu.gone:
                mark_gone(axes, second, unit, 0.94 * limit)


def _title(name: str, own: list[tuple[Sampled, GpuSeries]]) -> str:
    peaks = [gpu.spreads["memory"].peak for _, gpu in own if "memory" in gpu.spreads]
    total = max((gpu.total_mb for _, gpu in own if gpu.total_mb), default=None)
    if not peaks:
        return f"{name}: memory not reported"
    text = f"{name}: {max(peaks) / MIB_PER_GIB:.2f}"
    return f"{text} of {total / MIB_PER_GIB:.1f} GiB" if total else f"{text} GiB"


def _extremes(panels: list[list[tuple[Sampled, GpuSeries]]]) -> tuple[float, float | None]:
    """The most that any GPU used, and the most that one has, in MiB."""
    gpus = [gpu for own in panels for _, gpu in own]
    peak = max(gpu.spreads["memory"].peak for gpu in gpus if "memory" in gpu.spreads)
    return peak, max((gpu.total_mb for gpu in gpus if gpu.total_mb), default=None)
