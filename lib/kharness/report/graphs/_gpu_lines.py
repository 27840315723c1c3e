"""Shared parts of the graphs of GPU samples: which runs have any, the time axis, the style of a run's
line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kharness.report.gpu.columns import GpuCurve
from kharness.report.graphs._canvas import MAX_TOGETHER, PALETTE, SOFT
from kharness.report.plots.gpu_samples import (
    MIB_PER_GIB,
    Sampled,
    TimeUnit,
    memory_limit,
    point_rows,
    sampled,
    time_unit,
    without_samples,
)
from kharness.report.summary import Summary

__all__ = [
    "MIB_PER_GIB",
    "Sampled",
    "TimeUnit",
    "applies",
    "colors",
    "legend_width",
    "many_variants",
    "mark_gone",
    "memory_limit",
    "plot_run",
    "point_rows",
    "sampled",
    "time_unit",
    "variant_legend",
    "variants_of",
    "without_samples",
]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def applies(summary: Summary) -> bool:
    """GPU graphs are drawn where a run has GPU samples: others need no picture that says so."""
    return any(cell.gpus for cell in summary.cells)


def colors(labels: Sequence[str]) -> Mapping[str, str]:
    """One a label while colors can distinguish them; beyond that all look alike."""
    if len(labels) > MAX_TOGETHER:
        return dict.fromkeys(labels, PALETTE[0])
    return dict(zip(labels, PALETTE, strict=False))


def variants_of(runs: Sequence[Sampled]) -> list[str]:
    return list(dict.fromkeys(run.variant for run in runs))


def plot_run(axes: Axes, run: Sampled, curve: GpuCurve, unit: TimeUnit, scale: float, **look: Any) -> None:
    """A run's line: dotted, with a cross at its end, if the run did not complete."""
    seconds = [second / unit.seconds for second in curve.seconds]
    values = [value * scale for value in curve.means]
    if run.cell.run.complete:
        axes.plot(seconds, values, lw=1.2, **look)
    else:
        axes.plot(seconds, values, lw=1.3, ls=(0, (1, 1.2)), **look)
        axes.plot(seconds[-1:], values[-1:], marker="x", ms=5, mew=1.3, **look)
    if len(values) == 1:
        axes.plot(seconds, values, marker="o", ms=3, **look)


def variant_legend(figure: Figure, axes: Axes, runs: Sequence[Sampled]) -> None:
    """Names of variants next to the plot; none for a single run, whose name is in the subtitle."""
    from matplotlib.lines import Line2D

    if not legend_width(runs):
        return
    labels = variants_of(runs)
    of_label = colors(labels)
    handles = []
    for label in labels:
        n = sum(run.variant == label for run in runs)
        handles.append(Line2D([], [], color=of_label[label], lw=2.2, label=f"{label} (n={n})"))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4)


def legend_width(runs: Sequence[Sampled]) -> float:
    """Inches to leave next to the plot."""
    labels = variants_of(runs)
    if len(labels) < 2 or len(labels) > MAX_TOGETHER:
        return 0.0
    return 0.7 + 0.075 * (max(map(len, labels)) + 6)


def mark_gone(axes: Axes, seconds: float, unit: TimeUnit, height: float) -> None:
    """A GPU that stopped answering: nothing is known from here on."""
    axes.axvline(seconds / unit.seconds, color=SOFT, lw=0.8, ls=(0, (2, 2)), zorder=1)
    axes.annotate(
        "lost",
        (seconds / unit.seconds, height),
        xytext=(3, -2),
        textcoords="offset points",
        fontsize=8,
        color=SOFT,
        va="top",
    )


def many_variants(runs: Sequence[Sampled]) -> str:
    """Words of the subtitle."""
    count = len(variants_of(runs))
    return f"   {count} variants, all in one color" if count > MAX_TOGETHER else ""
