"""Power and temperature over time: one line per GPU of a single run, one line per run of a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from kharness.report.gpu.columns import GpuCurve
from kharness.report.gpu.history import GpuSeries
from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import (
    BACKDROP,
    INK,
    MAX_TOGETHER,
    PALETTE,
    SOFT,
    canvas,
    notes,
    nothing_to_draw,
)
from kharness.report.graphs._gpu_lines import (
    Sampled,
    TimeUnit,
    applies,
    colors,
    legend_width,
    many_variants,
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

TITLE = "GPU Power and Temperature"
QUANTITIES = {"power": "power (W)", "temperature": "temperature (°C)"}


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
            for quantity in QUANTITIES
            if (curve := line.curves.get(quantity))
            for row in point_rows([line.run.variant, line.run.cell.name, *of_gpu, quantity], curve)
        ],
    )


def draw(summary: Summary) -> Figure:
    lines = [line for line in _lines(summary) if any(name in line.curves for name in QUANTITIES)]
    if not lines:
        return nothing_to_draw(TITLE, summary.title, summary, "no GPU reports its power or temperature")
    runs = list({line.run.cell.name: line.run for line in lines}.values())
    one_run = len(summary.cells) == 1
    subtitle = f"{summary.title}{many_variants(runs)}\n"
    if not one_run:
        subtitle += "line: one run   power: sum over its GPUs   temperature: the hottest of them"
    elif len(lines) > MAX_TOGETHER:
        subtitle += "gray: a GPU   colored: the hottest one, and the one with the least power"
    else:
        subtitle += "line: one GPU"
    beside = (1.8 if len(lines) > MAX_TOGETHER else 0.95) if one_run else legend_width(runs)
    width = 8.4 + beside
    figure = canvas(width, 5.0, TITLE, subtitle, notes(summary, without_samples(summary)))
    figure.subplots_adjust(right=1 - (0.25 + beside) / width, hspace=0.16)
    unit = time_unit(runs)
    ends = max(run.history.seconds for run in runs) / unit.seconds
    for place, (quantity, label) in enumerate(QUANTITIES.items()):
        axes = figure.add_subplot(2, 1, place + 1)
        if one_run:
            gpus = [line.gpu for line in lines if line.gpu]
            _draw_gpus(axes, lines[0].run, gpus, quantity, unit, named=place == 0)
        else:
            of_label = colors(variants_of(runs))
            for line in lines:
                if curve := line.curves.get(quantity):
                    plot_run(axes, line.run, curve, unit, 1, color=of_label[line.run.variant], alpha=0.85)
            if place == 0:
                variant_legend(figure, axes, runs)
        if not any(quantity in line.curves for line in lines):
            axes.text(0.5, 0.5, "not reported", transform=axes.transAxes, ha="center", color=SOFT)
        axes.set_ylabel(label)
        axes.set_xlim(-0.01 * ends, 1.02 * ends or 1)
        axes.tick_params(labelbottom=place == 1)
        if quantity == "power":
            axes.set_ylim(0, 1.06 * max(_highest(lines, quantity), 1))
    axes.set_xlabel(unit.label)
    return figure


def _lines(summary: Summary) -> list[GpuLine]:
    runs = sampled(summary)
    if len(summary.cells) == 1:
        return [GpuLine(run, gpu, gpu.curves) for run in runs for gpu in run.history.gpus]
    return [GpuLine(run, None, run.history.together) for run in runs]


def _draw_gpus(
    axes: Axes, run: Sampled, gpus: Sequence[GpuSeries], quantity: str, unit: TimeUnit, *, named: bool
) -> None:
    from matplotlib.lines import Line2D

    chosen = _colored(gpus)
    # What is colored is drawn last, above the others.
    for gpu in sorted(gpus, key=lambda gpu: gpu.index in chosen):
        color = chosen.get(gpu.index, BACKDROP)
        if curve := gpu.curves.get(quantity):
            plot_run(axes, run, curve, unit, 1, color=color)
            _mark_loss(axes, gpu, curve, unit, color, named=named)
    if named:
        why = {PALETTE[1]: ": hottest", PALETTE[0]: ": least power"} if len(gpus) > MAX_TOGETHER else {}
        handles = [
            Line2D([], [], color=of_gpu, lw=2.2, label=gpu.label + why.get(of_gpu, ""))
            for gpu in sorted(gpus, key=attrgetter("index"))
            if (of_gpu := chosen.get(gpu.index))
        ]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4)


def _mark_loss(
    axes: Axes, gpu: GpuSeries, curve: GpuCurve, unit: TimeUnit, color: str, *, named: bool
) -> None:
    """A cross where a GPU stopped answering."""
    for lost in gpu.gone:
        before = [
            (second, mean)
            for second, mean in zip(curve.seconds, curve.means, strict=True)
            if second <= lost and mean == mean
        ]
        if before:
            second, mean = before[-1]
            axes.plot([second / unit.seconds], [mean], marker="x", ms=7, mew=1.8, color=color, zorder=5)
            axes.annotate(
                f"{gpu.label} lost" if named else "",
                (second / unit.seconds, mean),
                xytext=(8, -11),
                textcoords="offset points",
                fontsize=8,
                color=INK,
                va="center",
            )


def _colored(gpus: Sequence[GpuSeries]) -> Mapping[int, str]:
    """Return colors by index: for all GPUs while colors suffice, else for those that need attention."""
    if len(gpus) <= MAX_TOGETHER:
        return {gpu.index: PALETTE[i] for i, gpu in enumerate(gpus)}
    found: dict[int, str] = {}
    if hot := [gpu for gpu in gpus if "temperature" in gpu.spreads]:
        found[max(hot, key=lambda gpu: gpu.spreads["temperature"].peak).index] = PALETTE[1]
    if weak := [gpu for gpu in gpus if "power" in gpu.spreads]:
        found.setdefault(min(weak, key=lambda gpu: gpu.spreads["power"].mean).index, PALETTE[0])
    return found


def _highest(lines: Sequence[GpuLine], quantity: str) -> float:
    """Return the highest drawn value."""
    curves = [curve for line in lines if (curve := line.curves.get(quantity))]
    return max((mean for curve in curves for mean in curve.means if mean == mean), default=0.0)
