"""Each variant's difference from its baseline, with the interval that decides whether it counts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import (
    GRID,
    INK,
    PALETTE,
    SOFT,
    canvas,
    dress_rows,
    notes,
    nothing_to_draw,
)
from kharness.report.judging.judgment import Comparison, Verdict
from kharness.report.metrics import Metric
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Differences from the baseline"
# More rows than this are a table, and that is the CSV.
MAX_ROWS = 120
COLORS = {Verdict.BETTER: PALETTE[2], Verdict.WORSE: PALETTE[1]}
MARKERS = {Verdict.BETTER: "^", Verdict.WORSE: "v"}


def numbers(summary: Summary) -> Numbers:
    """Differences and intervals in the unit of the axis, and what follows from them."""
    return Numbers(
        [
            *("variant", "baseline", "metric", "unit", "difference", "low", "high", "level"),
            *("p_holm", "n_variant", "n_baseline", "verdict", "reason"),
        ],
        [
            [
                *(
                    one.variant,
                    one.baseline,
                    one.metric.name,
                    _unit(one.metric),
                    _scaled(one, one.difference),
                ),
                _scaled(one, one.interval.low if one.interval else None),
                _scaled(one, one.interval.high if one.interval else None),
                one.interval.level if one.interval else None,
                *(one.p_holm, *one.counts, one.verdict.value, one.reason),
            ]
            for one in summary.conclusions.comparisons
        ],
    )


def draw(summary: Summary) -> Figure:
    conclusions = summary.conclusions
    rows = [one for one in conclusions.comparisons if one.difference is not None]
    if not rows:
        why = "no variant can be compared with another yet" if len(summary.variants) > 1 else "one variant"
        return nothing_to_draw(TITLE, summary.title, summary, f"nothing to compare: {why}")
    extra = notes(summary, [])
    without = [one.variant for one in conclusions.comparisons if one.difference is None]
    if without:
        extra.append(f"without a difference: {len(without)} of {len(conclusions.comparisons)} variants")
    if len(rows) > MAX_ROWS:
        extra.append(f"the first {MAX_ROWS} of {len(rows)} variants; the CSV has all")
        rows = rows[:MAX_ROWS]
    of_metric: dict[str, list[Comparison]] = {}
    for one in rows:
        of_metric.setdefault(one.metric.name, []).append(one)
    longest = max(len(one.variant) for one in rows)
    gutter, words = 0.5 + 0.078 * longest, 2.75
    width, heights = 5.6 + gutter + words, [0.35 + 0.3 * len(part) for part in of_metric.values()]
    between = 0.7 * (len(heights) - 1)
    subtitle = _subtitle(summary, [*of_metric.values()])
    figure = canvas(width, sum(heights) + between, TITLE, subtitle, extra)
    figure.subplots_adjust(
        left=gutter / width, right=1 - words / width, hspace=0.7 * len(heights) / sum(heights)
    )
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)
    for axes, part in zip(panels[:, 0], of_metric.values(), strict=True):
        _draw_rows(axes, part, limit_of(part, part[0].metric.scale))
    return figure


def _subtitle(summary: Summary, parts: Sequence[Sequence[Comparison]]) -> str:
    rows, metrics = [one for part in parts for one in part], [part[0].metric.title for part in parts]
    levels = [one.interval.level for one in rows if one.interval]
    confidence = f"{100 * summary.settings.confidence:g}%"
    second = "hollow: no interval can be given"
    if levels:
        second = f"bar: {confidence} interval, all bars together   {second}"
    if any(_beyond(one, limit_of(part, part[0].metric.scale)) for part in parts for one in part):
        second += "   arrow: the bar continues"
    what = f"{', '.join(metrics)}, baseline: {summary.conclusions.baseline}"
    return f"{summary.title}   {what}\n{second}"


def _draw_rows(axes: Axes, rows: Sequence[Comparison], limit: float) -> None:
    metric = rows[0].metric
    axes.axvline(0, color=INK, lw=1, zorder=1)
    for y, one in enumerate(rows):
        _draw_row(axes, y, one, limit)
    dress_rows(axes, [one.variant for one in rows])
    axes.grid(axis="x", color=GRID)
    axes.set_xlim(*axis_of(rows, margin=0.06, scale=metric.scale))
    unit = _unit(metric)
    known = {True: "; right is better", False: "; left is better", None: ""}[metric.higher_is_better]
    axes.set_xlabel(f"difference in {metric.title}{f' ({unit})' if unit else ''}{known}")


def _draw_row(axes: Axes, y: int, one: Comparison, limit: float) -> None:
    color = COLORS.get(one.verdict, SOFT)
    difference = _scaled(one, one.difference) or 0.0
    if one.interval:
        low, high = (bound * one.metric.scale for bound in (one.interval.low, one.interval.high))
        ends = (max(low, -limit), min(high, limit))
        axes.plot(ends, [y, y], color=color, lw=2.2, alpha=0.55, solid_capstyle="butt", zorder=2)
        if low < -limit:
            axes.plot([-limit], [y], marker="<", ms=6, color=color, clip_on=False, zorder=3)
        if high > limit:
            axes.plot([limit], [y], marker=">", ms=6, color=color, clip_on=False, zorder=3)
    face = color if one.interval else "white"
    marker = MARKERS.get(one.verdict, "o")
    axes.plot([difference], [y], marker=marker, ms=7, mfc=face, mec=color, mew=1.4, zorder=4)
    bold = one.verdict in (Verdict.BETTER, Verdict.WORSE)
    words = f"{difference:+.{one.metric.digits}f}   {one.verdict.value}".replace("-", "−", 1)
    axes.text(
        1.03,
        y,
        words + (f"   n={one.counts[0]}" if one.counts[0] == one.counts[1] else ""),
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=8.5,
        color=color if bold else INK,
        fontweight="bold" if bold else "normal",
    )


def limit_of(rows: Sequence[Comparison], scale: float = 1.0) -> float:
    """Return how far from zero intervals are drawn, times `scale`: to where all begin, as far as most need.

    One variant with two seeds may have an interval a hundred times as long as the others.
    """
    differences = [abs(one.difference or 0.0) * scale for one in rows]
    ends = [max(abs(one.interval.low), abs(one.interval.high)) * scale for one in rows if one.interval]
    # The interval of several looks may lie beyond the difference over all seeds.
    differences += [abs(one.interval.nearest_zero) * scale for one in rows if one.interval]
    return max(1.15 * max(differences), 1.6 * statistics.median(ends) if ends else 0.0) or 1.0


def axis_of(rows: Sequence[Comparison], *, margin: float, scale: float = 1.0) -> tuple[float, float]:
    """Return both ends of an axis, times `scale`: zero, differences, intervals up to `limit_of`."""
    limit = limit_of(rows, scale)
    reached = [0.0, *((one.difference or 0.0) * scale for one in rows)]
    for one in rows:
        if one.interval:
            reached += [max(one.interval.low * scale, -limit), min(one.interval.high * scale, limit)]
    beyond = margin * (max(reached) - min(reached)) or 1.0
    return min(reached) - beyond, max(reached) + beyond


def _beyond(one: Comparison, limit: float) -> bool:
    interval = one.interval
    return interval is not None and max(-interval.low, interval.high) * one.metric.scale > limit


def _scaled(one: Comparison, number: float | None) -> float | None:
    return None if number is None else number * one.metric.scale


def _unit(metric: Metric) -> str:
    """Return the unit of a difference: 98 % minus 97 % is one percentage point."""
    return "percentage points" if metric.shown_unit == "%" else metric.shown_unit or metric.unit
