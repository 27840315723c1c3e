"""Plots of cost, drawn by the page: time per step, time to the target, quality against its price."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kharness.report.curves import SCALE_WORDS, SIZE, Scale, scale_of
from kharness.report.graphs.time_per_step import Spread, ends_of, spreads_of
from kharness.report.graphs.time_to_target import unit_of
from kharness.report.judging.pareto import Front
from kharness.report.judging.profiles import VariantTimes
from kharness.report.metrics import metric_named
from kharness.report.plots.plot import Plot, PlotPath, without_neighbors
from kharness.report.summary import Summary
from kharness.runs.status import COMPLETE
from monitoring.counts import counted

MOST_ROWS = 20
"""Rows of a picture; the CSV of its graph has all."""
# Points that have their names beside them; of a front of more, the best.
_MOST_NAMED, _NAMED_OF_MANY = 8, 3
# Percent of the frame: points that are as near as this have their names moved apart.
_NAME_HEIGHT, _NAME_WIDTH = 7.5, 30.0


@dataclass(frozen=True)
class PlotMark:
    """A dot, or a bar of some width, in percent of the axis; `look` is its CSS class."""

    look: str
    left: float
    width: float = 0.0


@dataclass(frozen=True)
class MarkedRow:
    """One variant: its marks, and its number in words."""

    name: str
    marks: Sequence[PlotMark]
    words: str


@dataclass(frozen=True)
class RowPlot:
    """Rows on one axis that begins at zero."""

    title: str
    caption: str
    rows: Sequence[MarkedRow]
    ticks: Sequence[tuple[float, str]]
    quantity: str = ""
    """Label of the axis, where the title says something else."""
    legend: Sequence[tuple[str, int]] = ()
    """Texts with their colors."""


def time_per_step(summary: Summary) -> list[RowPlot]:
    """Return the spread of the step time of each variant, the fastest first; nothing without one."""
    of_variant: dict[str, list[Spread]] = {}
    for one in spreads_of(summary):
        of_variant.setdefault(one.variant, []).append(one)
    medians = {name: statistics.median(one.quantiles[2] for one in own) for name, own in of_variant.items()}
    shown = sorted(medians, key=lambda name: medians[name])[:MOST_ROWS]
    if not shown:
        return []
    axis = Scale("linear", 0.0, 1.02 * max(one.quantiles[-1] for name in shown for one in of_variant[name]))
    rows = []
    for name in shown:
        own = of_variant[name]
        lows, highs = ends_of(own)
        bars = [bar(look, low, high, axis) for look, low, high in zip(_BARS, lows, highs, strict=True)]
        dots = [
            PlotMark("point" if one.status == COMPLETE else "point hollow", percent(one.quantiles[2], axis))
            for one in own
        ]
        rows.append(MarkedRow(name, [*bars, *dots], f"{medians[name]:.2f} ms"))
    caption = "Dot: median of a run; thick: middle half of the steps; thin: 5 % to 95 %, over all runs"
    return [RowPlot("Time per step (ms)", caption + _left_out(shown, medians, summary), rows, axis.ticks(5))]


_BARS = ("thin", "thick")


def time_to_target(summary: Summary) -> list[RowPlot]:
    """Return when runs reached the target, the fastest variant first; a picture per workload."""
    found = []
    unit, times = unit_of(summary)
    for one in times:
        medians = {variant.variant: unit.median(variant) for variant in one.variants}
        known = {name: median for name, median in medians.items() if median is not None}
        ordered = sorted(one.variants, key=lambda variant: known.get(variant.variant, math.inf))
        shown = ordered[:MOST_ROWS]
        highest = max(time for variant in one.variants for time in unit.of_runs(variant))
        axis = Scale("linear", 0.0, 1.12 * highest)
        rows = []
        for variant in shown:
            median = medians[variant.variant]
            marks = [PlotMark("point soft", percent(time, axis)) for time in unit.of_runs(variant)]
            if median is not None and math.isfinite(median):
                marks.append(PlotMark("median", percent(median, axis)))
            if any(run.reached is False for run in variant.runs):
                marks.append(PlotMark("missed", percent(1.07 * highest, axis)))
            rows.append(MarkedRow(variant.variant, marks, _words(unit.words(median), variant)))
        workload = f" on {one.workload}" if len(times) > 1 else ""
        what = f"{one.target}, {one.target.chosen_by}"
        caption = f"{what}. Dot: a run; bar: median; x: over without having reached it"
        found.append(
            RowPlot(
                f"{unit.title}{workload}", caption + _left_out(shown, ordered, summary), rows, axis.ticks(5)
            )
        )
    return found


def _words(median: str, variant: VariantTimes) -> str:
    missed = sum(run.reached is False for run in variant.runs)
    if not missed or len(variant.runs) == 1:
        return median
    never = f"{missed} of {len(variant.runs)} never"
    return never if median == "never" else f"{median}, {never}"


def _left_out(shown: Sequence[object], whole: Collection[object], summary: Summary) -> str:
    many = counted(len(whole), summary.variant_word)
    return f". The {len(shown)} fastest of {many}." if len(shown) < len(whole) else "."


def bar(look: str, low: float, high: float, axis: Scale) -> PlotMark:
    """Return a bar from one value to another."""
    left = percent(low, axis)
    return PlotMark(look, left, round(percent(high, axis) - left, 1))


def percent(value: float, axis: Scale) -> float:
    """Return the place of a value in percent of its axis."""
    return axis.at(value) / (SIZE / 100)


def price(front: Front) -> Plot | None:
    """Return quality over one kind of cost, a point per variant; those on the front are filled and named."""
    if not front.points:
        return None
    quality, cost = metric_named(front.quality), metric_named(front.cost)
    at = {name: (paid * cost.scale, good * quality.scale) for name, (good, paid) in front.points.items()}
    paid = [x for x, _ in at.values()]
    wide = max(paid) > 10 * min(paid) > 0
    x = scale_of(paid, "log") if wide else Scale("linear", 0.0, 1.1 * max(paid) or 1.0)
    y = scale_of([value for _, value in at.values()])
    members = [name for name in front.points if name in front.members]
    ordered = [*(name for name in at if name not in front.members), *members]  # the front is drawn above
    paths = [
        PlotPath(
            "point" if name in front.members else "point beaten",
            f"M{x.at(at[name][0])} {SIZE - y.at(at[name][1])}h0",
            title=f"{name}: {at[name][1]:.4g}, {at[name][0]:.4g}",
        )
        for name in ordered
    ]
    best = sorted(members, key=lambda name: at[name][1], reverse=bool(quality.higher_is_better))
    named = best if len(best) <= _MOST_NAMED else best[:_NAMED_OF_MANY]
    beaten = f", {len(front.dominated)} of {len(at)} are shown to be beaten" if front.dominated else ""
    return Plot(
        name="pareto_front",
        title=f"{quality.label} by {cost.label}",
        x_label=", ".join(filter(None, (cost.label, SCALE_WORDS[x.kind]))),
        alt=f"{quality.label} by {cost.label}: on the front {', '.join(named)}{beaten}.",
        paths=paths,
        x_ticks=without_neighbors(x.ticks()),
        y_ticks=[(100 - place, text) for place, text in y.ticks(7)],
        ends=[],
        legend=[],
        names=_placed([(x.at(at[name][0]) / 10, 100 - y.at(at[name][1]) / 10, name) for name in named]),
        x=x,
        y=y,
    )


def _placed(wanted: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Return names beside their points, moved down where they would lie on one that is placed already."""
    placed: list[tuple[float, float, str]] = []
    for left, top, name in sorted(wanted, key=lambda one: one[1]):
        near = [other for other in placed if abs(other[0] - left) < _NAME_WIDTH]
        lowest = max((other[1] for other in near), default=-math.inf)
        placed.append((left, round(max(top, lowest + _NAME_HEIGHT), 1), name))
    return placed
