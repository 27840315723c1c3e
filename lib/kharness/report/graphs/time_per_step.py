"""Time per optimiser step: its spread in every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import (
    INK,
    PALETTE,
    SOFT,
    canvas,
    notes,
    nothing_to_draw,
)
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Time per step"
METRIC = "sec_per_step"
QUANTILES = (5, 25, 50, 75, 95)
# More rows than this are a table, and that is the CSV.
MAX_RUNS = 160


@dataclass(frozen=True)
class Spread:
    """Milliseconds a step of one run."""

    variant: str
    run: str
    status: str
    num_steps: int
    quantiles: Sequence[float]
    """At QUANTILES."""
    highest: float


def numbers(summary: Summary) -> Numbers:
    """Quantiles of the step time of every run, in milliseconds."""
    return Numbers(
        ["variant", "run", "status", "num_steps", *(f"p{q:02}_ms" for q in QUANTILES), "max_ms"],
        [
            [one.variant, one.run, one.status, one.num_steps, *one.quantiles, one.highest]
            for one in _spreads(summary)
        ],
    )


def draw(summary: Summary) -> Figure:
    spreads = _spreads(summary)
    if not spreads:
        return nothing_to_draw(TITLE, summary.title, summary, "no run has recorded a time per step yet")
    drawn = {one.run for one in spreads}
    extra = notes(summary, [cell.name for cell in summary.cells if cell.name not in drawn])
    if len(spreads) > MAX_RUNS:
        extra.append(f"the first {MAX_RUNS} of {len(spreads)} runs; the CSV has all")
        spreads = spreads[:MAX_RUNS]
    subtitle = (
        f"{summary.title}\ndot: median   thick: middle half of the steps   thin: 5% to 95%   "
        "hollow: not complete"
    )
    labels = list(dict.fromkeys(one.variant for one in spreads))
    gutter = 0.55 + 0.078 * max(map(len, labels))
    width = 8.2 + gutter
    figure = canvas(width, 0.35 + 0.24 * len(spreads) + 0.16 * len(labels), TITLE, subtitle, extra)
    figure.subplots_adjust(left=gutter / width, right=1 - 0.75 / width)
    _draw_rows(figure.add_subplot(), spreads, labels)
    return figure


def _draw_rows(axes: Axes, spreads: Sequence[Spread], labels: Sequence[str]) -> None:
    right = axes.get_yaxis_transform()
    axes.text(1.075, -0.85, "median", transform=right, ha="right", va="bottom", fontsize=8, color=SOFT)
    y, ticks = 0.0, []
    for i, label in enumerate(labels):
        color = PALETTE[i % len(PALETTE)]
        own = [one for one in spreads if one.variant == label]
        first = y
        for one in own:
            p05, p25, p50, p75, p95 = one.quantiles
            axes.plot([p05, p95], [y, y], color=color, lw=1.1, alpha=0.6, solid_capstyle="butt", zorder=2)
            axes.plot([p25, p75], [y, y], color=color, lw=5.5, alpha=0.45, solid_capstyle="butt", zorder=3)
            face = color if one.status == "complete" else "white"
            axes.plot([p50], [y], marker="o", ms=6.5, mfc=face, mec=color, mew=1.4, zorder=4)
            axes.text(1.075, y, f"{p50:.2f}", transform=right, ha="right", va="center", fontsize=8, color=INK)
            y += 1
        ticks.append((first + y - 1) / 2)
        y += 0.67
    axes.set_yticks(ticks, labels)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(y - 0.67 - 0.3, -0.7)
    # From zero, so that lengths compare as times do.
    axes.set_xlim(0, 1.02 * max(one.quantiles[-1] for one in spreads) or 1)
    axes.set_xlabel("time per step (ms)")


def _spreads(summary: Summary) -> list[Spread]:
    import numpy as np

    found = []
    for variant in summary.variants:
        for cell in variant.cells:
            seconds = cell.run.metric("step", METRIC).values
            if seconds:
                values = np.asarray(seconds) * 1000
                quantiles = [float(q) for q in np.percentile(values, QUANTILES)]
                found.append(
                    Spread(
                        variant=variant.label,
                        run=cell.name,
                        status=cell.run.status,
                        num_steps=len(values),
                        quantiles=quantiles,
                        highest=float(values.max()),
                    )
                )
    return found
