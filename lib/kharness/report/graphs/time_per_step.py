"""Time per optimizer step: its spread in every run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import (
    INK,
    PALETTE,
    SOFT,
    bare_rows,
    canvas,
    dress_rows,
    notes,
    nothing_to_draw,
)
from kharness.report.summary import Summary
from kharness.runs.status import COMPLETE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Time per step"
METRIC = "sec_per_step"
QUANTILES = (5, 25, 50, 75, 95)
# Of several runs: where their lower and their upper quantiles end.
ENDS = ((min, (0, 1)), (max, (4, 3)))
# With more runs than this a row is a variant.
MAX_RUNS = 40
# More rows than this are a table, and that is the CSV.
MAX_VARIANTS = 120


@dataclass(frozen=True)
class Spread:
    """Milliseconds per step of one run."""

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
            for one in spreads_of(summary)
        ],
    )


def draw(summary: Summary) -> Figure:
    spreads = spreads_of(summary)
    if not spreads:
        return nothing_to_draw(TITLE, summary.title, summary, "no run has recorded a time per step yet")
    drawn = {one.run for one in spreads}
    extra = notes(summary, [cell.name for cell in summary.cells if cell.name not in drawn])
    labels = list(dict.fromkeys(one.variant for one in spreads))
    each_run = len(spreads) <= MAX_RUNS
    if len(labels) > MAX_VARIANTS:
        extra.append(f"the first {MAX_VARIANTS} of {len(labels)} variants; the CSV has all")
        labels = labels[:MAX_VARIANTS]
        spreads = [one for one in spreads if one.variant in set(labels)]
    dot = "dot: median" if each_run else "dot: median of a run"
    widest = "" if each_run else ", from the fastest run to the slowest"
    subtitle = (
        f"{summary.title}\n{dot}   thick: middle half of the steps   thin: 5% to 95%{widest}   "
        "hollow: not complete"
    )
    gutter = 0.55 + 0.078 * max(map(len, labels))
    width = 8.2 + gutter
    rows = 0.24 * len(spreads) + 0.16 * len(labels) if each_run else 0.27 * len(labels)
    figure = canvas(width, 0.35 + rows, TITLE, subtitle, extra)
    figure.subplots_adjust(left=gutter / width, right=1 - 0.75 / width)
    axes = figure.add_subplot()
    if each_run:
        _draw_runs(axes, spreads, labels)
    else:
        _draw_variants(axes, spreads, labels)
    _dress(axes, spreads)
    return figure


def _draw_variants(axes: Axes, spreads: Sequence[Spread], labels: Sequence[str]) -> None:
    """One row per variant: its runs' medians, and around them the widest of what they took."""
    lows: list[list[float]] = []
    highs: list[list[float]] = []
    # All at once: a hundred variants are four hundred calls of `plot` else.
    dots: dict[bool, tuple[list[float], list[int]]] = {True: ([], []), False: ([], [])}
    for y, label in enumerate(labels):
        own = [one for one in spreads if one.variant == label]
        low, high = ends_of(own)
        lows.append(low)
        highs.append(high)
        for one in own:
            medians, places = dots[one.status == COMPLETE]
            medians.append(one.quantiles[2])
            places.append(y)
        _write_median(axes, y, statistics.median(one.quantiles[2] for one in own))
    _draw_bars(axes, range(len(labels)), PALETTE[0], lows, highs)
    for complete, (medians, places) in dots.items():
        face = PALETTE[0] if complete else "white"
        axes.plot(medians, places, "o", ms=5, mfc=face, mec=PALETTE[0], mew=1, zorder=4)
    dress_rows(axes, labels, above=0.7)


def _draw_bars(
    axes: Axes,
    places: Sequence[float],
    color: str,
    lows: Sequence[Sequence[float]],
    highs: Sequence[Sequence[float]],
) -> None:
    """Quantiles, at each place: 5 % to 95 %, and 25 % to 75 %."""
    looks: list[dict[str, Any]] = [
        {"lw": 1.1, "alpha": 0.6, "zorder": 2},
        {"lw": 5.5, "alpha": 0.45, "zorder": 3},
    ]
    for i, look in enumerate(looks):
        axes.hlines(places, [low[i] for low in lows], [high[i] for high in highs], color=color, **look)


def _write_median(axes: Axes, y: float, median: float) -> None:
    right = axes.get_yaxis_transform()
    axes.text(1.075, y, f"{median:.2f}", transform=right, ha="right", va="center", fontsize=8, color=INK)


def _draw_runs(axes: Axes, spreads: Sequence[Spread], labels: Sequence[str]) -> None:
    y, ticks = 0.0, []
    for i, label in enumerate(labels):
        color = PALETTE[i % len(PALETTE)]
        own = [one for one in spreads if one.variant == label]
        first = y
        for one in own:
            p05, p25, p50, p75, p95 = one.quantiles
            _draw_bars(axes, [y], color, [(p05, p25)], [(p95, p75)])
            face = color if one.status == COMPLETE else "white"
            axes.plot([p50], [y], marker="o", ms=6.5, mfc=face, mec=color, mew=1.4, zorder=4)
            _write_median(axes, y, p50)
            y += 1
        ticks.append((first + y - 1) / 2)
        y += 0.67
    axes.set_yticks(ticks, labels)
    axes.set_ylim(y - 0.67 - 0.3, -0.7)
    bare_rows(axes)


def _dress(axes: Axes, spreads: Sequence[Spread]) -> None:
    right = axes.get_yaxis_transform()
    axes.text(1.075, -0.85, "median", transform=right, ha="right", va="bottom", fontsize=8, color=SOFT)
    # From zero, so that lengths compare as times do.
    axes.set_xlim(0, 1.02 * max(one.quantiles[-1] for one in spreads) or 1)
    axes.set_xlabel("time per step (ms)")


def ends_of(own: Sequence[Spread]) -> tuple[list[float], list[float]]:
    """Return where the two lower and the two upper quantiles of several runs end, the outer one first."""
    low, high = ([pick(one.quantiles[i] for one in own) for i in ends] for pick, ends in ENDS)
    return low, high


def spreads_of(summary: Summary) -> list[Spread]:
    if METRIC not in summary.drawn:
        summary.drawn[METRIC] = _measured(summary)
    found: list[Spread] = summary.drawn[METRIC]
    return found


def _measured(summary: Summary) -> list[Spread]:
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
