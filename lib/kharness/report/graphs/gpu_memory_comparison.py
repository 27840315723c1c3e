"""GPU memory of the variants side by side: what all GPUs needed at once, and the fullest one."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import INK, PALETTE, SOFT, canvas, dress_rows, notes, nothing_to_draw
from kharness.report.graphs._gpu_lines import MIB_PER_GIB, sampled, without_samples
from kharness.report.graphs._gpu_lines import applies as has_samples
from kharness.report.summary import Summary
from kharness.runs.status import COMPLETE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "GPU Memory Comparison"

# More rows than this are a table, and that is the CSV.
MAX_VARIANTS = 80


@dataclass(frozen=True)
class Peak:
    """Peak memory of one run, in MiB."""

    variant: str
    run: str
    status: str
    num_gpus: int
    total_mb: float
    fullest_gpu: int
    fullest_mb: float
    has_mb: float | None
    """Memory of the fullest GPU."""


def applies(summary: Summary) -> bool:
    """A single run has nothing to be compared with."""
    return len(summary.variants) > 1 and has_samples(summary)


def numbers(summary: Summary) -> Numbers:
    """One row per run."""
    return Numbers(
        [
            *("variant", "run", "status", "num_gpus", "peak_total_mb"),
            *("fullest_gpu", "fullest_gpu_peak_mb", "gpu_mb"),
        ],
        map(astuple, _peaks(summary)),
    )


def draw(summary: Summary) -> Figure:
    peaks = _peaks(summary)
    if not peaks:
        return nothing_to_draw(TITLE, summary.title, summary, "no GPU reports its memory")
    labels = list(dict.fromkeys(peak.variant for peak in peaks))
    extra = notes(summary, without_samples(summary))
    if len(labels) > MAX_VARIANTS:
        extra.append(f"the first {MAX_VARIANTS} of {len(labels)} variants; the CSV has all")
        labels = labels[:MAX_VARIANTS]
    several = any(sum(peak.variant == label for peak in peaks) > 1 for label in labels)
    subtitle = f"{summary.title}\nhighest value of any sample   dot: one run   hollow: not complete"
    if several:
        subtitle += "   bar: mean of the complete runs"
    gutter = 0.55 + 0.078 * max(map(len, labels))
    width = 8.4 + gutter
    figure = canvas(width, 0.75 + 0.42 * len(labels), TITLE, subtitle, extra)
    top = 1 - 1.25 / figure.get_figheight()
    figure.subplots_adjust(left=gutter / width, right=1 - 0.4 / width, wspace=0.14, top=top)
    counts = sorted({peak.num_gpus for peak in peaks})
    gpus = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    for place, (title, which) in enumerate(
        ((f"all {gpus} GPUs together", "total_mb"), ("the fullest GPU", "fullest_mb"))
    ):
        axes = figure.add_subplot(1, 2, place + 1)
        _draw_rows(axes, peaks, labels, which)
        axes.set_title(title if counts != [1] or place else "the GPU", fontsize=10, loc="left", color=INK)
        axes.tick_params(labelleft=place == 0)
        if place == 1:
            limits = {peak.has_mb for peak in peaks if peak.has_mb}
            if len(limits) == 1 and max(peak.fullest_mb for peak in peaks) > 0.6 * max(limits):
                axes.axvline(max(limits) / MIB_PER_GIB, color=SOFT, lw=1, ls=(0, (4, 3)))
    return figure


def _draw_rows(axes: Axes, peaks: Sequence[Peak], labels: Sequence[str], which: str) -> None:
    highest = 0.0
    for y, label in enumerate(labels):
        color = PALETTE[y % len(PALETTE)]
        own = [peak for peak in peaks if peak.variant == label]
        complete = [getattr(peak, which) / MIB_PER_GIB for peak in own if peak.status == COMPLETE]
        if complete:
            mean = sum(complete) / len(complete)
            axes.barh([y], [mean], height=0.55, color=color, alpha=0.28, lw=0, zorder=2)
            axes.text(
                mean, y - 0.36, f" {mean:.2f}", fontsize=8, color=INK, va="center", ha="right", zorder=5
            )
        for peak in own:
            value = getattr(peak, which) / MIB_PER_GIB
            face = color if peak.status == COMPLETE else "white"
            axes.plot([value], [y], marker="o", ms=6, mfc=face, mec=color, mew=1.3, zorder=4)
            highest = max(highest, value)
    dress_rows(axes, labels)
    # From zero, so that lengths compare as amounts do.
    axes.set_xlim(0, 1.08 * highest or 1)
    axes.set_xlabel("GiB")


def _peaks(summary: Summary) -> list[Peak]:
    found = []
    for run in sampled(summary):
        history = run.history
        gpus = [gpu for gpu in history.gpus if "memory" in gpu.spreads]
        if gpus and history.peak_memory_mb is not None:
            fullest = max(gpus, key=lambda gpu: gpu.spreads["memory"].peak)
            found.append(
                Peak(
                    variant=run.variant,
                    run=run.cell.name,
                    status=run.cell.run.status,
                    num_gpus=len(history.gpus),
                    total_mb=history.peak_memory_mb,
                    fullest_mb=fullest.spreads["memory"].peak,
                    fullest_gpu=fullest.index,
                    has_mb=fullest.total_mb,
                )
            )
    return found
