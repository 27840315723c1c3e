"""Curves over training steps: a thin line per run, a bold one for the mean of a variant's complete runs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kharness.report.curves import SCALE_WORDS, Curve, PlottedMetric, scale_of
from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import (
    BACKDROP,
    MARKERS,
    MAX_TOGETHER,
    PALETTE,
    canvas,
    folded,
    label_outer,
    notes,
    nothing_to_draw,
)
from kharness.report.graphs._panels import ALONE, Panels, Turn, same_as, turns
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Variants that have a panel; of more a wall of them says less than the page, where the best stand out.
MOST_PANELS = 30
# With more variants than this the others are an area behind each of them.
MOST_LINES = 24
# Characters that fit above one of several panels, followed by the number of runs.
TITLE_WIDTH = 31


@dataclass(frozen=True)
class CurveGraph:
    """A graph of one metric: its words, where they are not those of the page."""

    metric: PlottedMetric
    title: str
    y_label: str
    value_name: str
    """The column of the CSV, in the unit of the axis."""

    def numbers(self, summary: Summary) -> Numbers:
        """One row per point of each run and of each variant's mean, in the unit of the axis."""
        return curve_numbers(self.metric.curves(summary)[0], self.value_name, extremes=self.metric.binned)

    def draw(self, summary: Summary) -> Figure:
        """All variants in one panel while colors can distinguish them, else one panel each."""
        found, size = self.metric.curves(summary)
        return draw_curves(summary, found, self, size=size)


def curve_numbers(found: Sequence[Curve], value_name: str, *, extremes: bool = False) -> Numbers:
    """One row per point; an empty run is the mean, and `num_runs` says of how many.

    `extremes` adds the lowest and the highest value of the steps that a point stands for.
    """
    num = 4 if extremes else 2
    return Numbers(
        ["variant", "run", "num_runs", "global_step", *(value_name, "lowest", "highest")[: num - 1]],
        (
            [curve.variant, curve.run, curve.num_runs, *point[:num]]
            for curve in found
            for point in zip(curve.steps, curve.values, curve.lows, curve.highs, strict=True)
        ),
    )


def draw_curves(summary: Summary, found: Sequence[Curve], look: CurveGraph, *, size: int) -> Figure:
    """All variants in one panel while colors can distinguish them, else one panel each."""
    subtitle = f"{summary.title}\nbold: mean of a variant's complete runs   thin: one run"
    if any(not curve.complete for curve in found):
        subtitle += "   dotted: a run that did not complete"
    if size > 1:
        subtitle += f"   each point: mean of {size} steps, area: their range"
    labels = list(dict.fromkeys(curve.variant for curve in found))
    if len(labels) <= MAX_TOGETHER and any(turn.of > 1 for turn in turns([_drawn(c) for c in found])):
        subtitle += "   striped: exactly equal curves"
    if not labels:
        return nothing_to_draw(
            look.title, summary.title, summary, f"no run has recorded a {look.title.lower()} yet"
        )
    drawn = {curve.run for curve in found}
    extra = notes(summary, [cell.name for cell in summary.cells if cell.name not in drawn])
    if len(labels) <= MAX_TOGETHER:
        return _one_panel(found, labels, look, subtitle, extra)
    if len(labels) > MOST_PANELS:
        extra.append(f"the first {MOST_PANELS} of {len(labels)} variants; the CSV has all")
    return _panel_each(found, labels[:MOST_PANELS], look, subtitle, extra)


def _one_panel(
    found: Sequence[Curve], labels: Sequence[str], look: CurveGraph, subtitle: str, extra: list[str]
) -> Figure:
    from matplotlib.lines import Line2D

    names = _names(found, labels)
    legend_width = 0.9 + 0.075 * max(len(line) for name in names for line in name.split("\n"))
    figure = canvas(7.6 + legend_width, 4.0, look.title, subtitle, extra)
    figure.subplots_adjust(right=1 - legend_width / (7.6 + legend_width))
    axes = figure.add_subplot()
    turn_of = dict(zip(map(id, found), turns([_drawn(curve) for curve in found]), strict=True))
    handles = []
    for i, (label, words) in enumerate(zip(labels, names, strict=True)):
        own = [(curve, turn_of[id(curve)]) for curve in found if curve.variant == label]
        marker = MARKERS[i] if look.metric.dots else None
        _plot(axes, own, PALETTE[i], marker)
        for steps, lows, highs in _areas([curve for curve, _ in own]):
            axes.fill_between(steps, lows, highs, color=PALETTE[i], alpha=0.12, lw=0, zorder=2)
        handles.append(Line2D([], [], color=PALETTE[i], lw=2.4, marker=marker, ms=5, label=words))
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=1.6)
    words = _scale(axes, found, look)
    label_outer([axes], 1, "optimizer step", f"{look.y_label}, {words}" if words else look.y_label)
    return figure


def _panel_each(
    found: Sequence[Curve], labels: Sequence[str], look: CurveGraph, subtitle: str, extra: list[str]
) -> Figure:
    columns = min(4, math.ceil(math.sqrt(len(labels))))
    rows = math.ceil(len(labels) / columns)
    means, extremes = [curve for curve in found if not curve.run], _extremes(found)
    words = SCALE_WORDS[scale_of(extremes.values, look.metric.kind).kind]
    titles = [f"{folded(label, TITLE_WIDTH)} (n={_num_runs(found, label)})" for label in labels]
    second = 0.15 * any("\n" in title for title in titles)
    band = _band(means) if len(labels) > MOST_LINES else None
    others = "range of variants" if band else "the other variants"
    subtitle += f"   gray: {others}{'   ' if words else ''}{words}"
    figure = canvas(2.75 * columns + 1.0, (2.15 + second) * rows + 0.22, look.title, subtitle, extra)
    top = 1 - (1.22 + second) / figure.get_figheight()
    figure.subplots_adjust(hspace=0.34 + 0.6 * second, wspace=0.08, top=top)
    template = figure.add_subplot(rows, columns, 1)
    _scale(template, [extremes], look, num_ticks=4)
    template.set_xlim(0, 1.02 * extremes.steps[-1])
    panels = Panels(figure, template, len(labels))
    _plot_panels(panels, found, labels)
    around = {"color": BACKDROP, "lw": 0.7, "ls": "-", "marker": _dot(means), "ms": 3, "zorder": 1}
    for i in range(len(labels)):
        if band:
            panels.area(panels.place(i, *band), color=BACKDROP, lw=0.7, zorder=1)
        else:
            panels.points([panels.place(i, *_joined(means))], **around)
    panels.frames(titles, "optimizer step", look.y_label)
    return figure


def _plot_panels(panels: Panels, found: Sequence[Curve], labels: Sequence[str]) -> None:
    """Each variant's curves in its own panel."""
    number = {label: i for i, label in enumerate(labels)}
    with_mean = {curve.variant for curve in found if not curve.run}
    means, dotted, ends = [], [], []
    runs: list[Any] = []
    alone: list[Any] = []
    for curve in found:
        if curve.variant not in number:
            continue
        line = panels.place(number[curve.variant], curve.steps, curve.values)
        for steps, lows, highs in _areas([curve]):
            outline = [*steps, *reversed(steps)], [*lows, *reversed(highs)]
            place = panels.place(number[curve.variant], *outline)
            panels.area(place, color=PALETTE[0], alpha=0.12, lw=0, zorder=2)
        if not curve.run:
            means.append(line)
        elif curve.complete:
            (runs if curve.variant in with_mean else alone).append(line)
        else:
            dotted.append(line)
            ends.append(line[-1:])
    color = PALETTE[0]
    for lines, alpha in ((runs, 0.45), (alone, 1.0)):
        panels.lines(lines, colors=color, linewidths=0.9, alpha=alpha, zorder=3)
        single = [line for line in lines if len(line) == 1]
        panels.points(single, color=color, alpha=alpha, marker="o", ms=3.5, zorder=3)
    panels.lines(means, colors=color, linewidths=2.2, capstyle="round", zorder=4)
    panels.points([line for line in means if len(line) == 1], color=color, marker="o", ms=5, zorder=4)
    panels.lines(dotted, colors=color, linewidths=1.3, linestyles=[ALONE.dashes(dotted=True)], zorder=3)
    panels.points(ends, color=color, marker="x", ms=6, mew=1.5, zorder=5)


def _areas(own: Sequence[Curve]) -> Iterator[tuple[Sequence[float], Sequence[float], Sequence[float]]]:
    """Steps, lowest and highest values of the runs whose points are means of several different values."""
    for curve in own:
        if curve.run and list(curve.lows) != list(curve.highs):
            yield curve.steps, curve.lows, curve.highs


def _names(found: Sequence[Curve], labels: Sequence[str]) -> list[str]:
    """Legend: a variant, how many runs its mean is of, and the first one with exactly its curves."""
    keys = [tuple(_drawn(curve) for curve in found if curve.variant == label) for label in labels]
    return [
        f"{label} (n={_num_runs(found, label)})" + (f"\nsame as {first}" if first else "")
        for label, first in zip(labels, same_as(keys, labels), strict=True)
    ]


def _drawn(curve: Curve) -> Hashable:
    """All that decides where and how a curve is drawn, its color aside."""
    return not curve.run, curve.complete, tuple(curve.steps), tuple(curve.values)


def _num_runs(found: Sequence[Curve], label: str) -> int:
    """How many runs a variant's mean is of."""
    return max((curve.num_runs for curve in found if curve.variant == label and not curve.run), default=0)


def _dot(drawn: Sequence[Curve]) -> str | None:
    """A marker, where some curve is a single point, which a line does not show."""
    return "o" if any(len(curve.steps) == 1 for curve in drawn) else None


def _joined(found: Sequence[Curve]) -> tuple[list[float], list[float]]:
    """All curves as one line with gaps, which draws much faster than as many."""
    steps: list[float] = []
    values: list[float] = []
    for curve in found:
        steps += [*curve.steps, math.nan]
        values += [*curve.values, math.nan]
    return steps, values


def _band(means: Sequence[Curve]) -> tuple[list[float], list[float]] | None:
    """The outline of all curves, along the lowest values and back; None if they have not the same steps.

    So many lines side by side are an area, too, and in each of a hundred panels take a third of the time.
    """
    if len({tuple(curve.steps) for curve in means}) != 1 or len(means[0].steps) < 2:
        return None
    at_each = list(zip(*(curve.values for curve in means), strict=True))
    steps = list(means[0].steps)
    return [*steps, *reversed(steps)], [*map(min, at_each), *map(max, reversed(at_each))]


def _extremes(found: Sequence[Curve]) -> Curve:
    """Return the extremes that the axes must cover: first and last step, lowest and highest value.

    Of values up to 100 the highest below it too, which a scale of the error needs.
    """
    steps = [step for curve in found if curve.steps for step in (curve.steps[0], curve.steps[-1])]
    columns = [column for curve in found for column in (curve.values, curve.lows, curve.highs) if column]
    below = max((value for column in columns for value in column if value < 100), default=None)
    highest = [min(map(min, columns)), max(map(max, columns)), *([] if below is None else [below])]
    return Curve("", "", True, 0, [min(steps), max(steps)], highest)


def _plot(axes: Axes, own: Sequence[tuple[Curve, Turn]], color: str, marker: str | None) -> None:
    has_mean = any(not curve.run for curve, _ in own)
    for curve, turn in own:
        steps, values, dot = list(curve.steps), list(curve.values), _dot([curve])
        look: dict[str, Any] = {"color": color, "ls": turn.dashes(dotted=not curve.complete)}
        if not curve.run:
            look |= {"lw": 2.2, "marker": marker or dot, "zorder": 4, "solid_capstyle": "round"}
            axes.plot(steps, values, **look, **turn.markers(len(steps), 5))
        elif curve.complete:
            look |= {"lw": 0.9, "marker": dot, "alpha": 0.45 if has_mean else 1, "zorder": 3}
            axes.plot(steps, values, **look, **turn.markers(len(steps), 3.5))
        else:
            axes.plot(steps, values, **look, lw=1.3, zorder=3)
            axes.plot(steps[-1:], values[-1:], color=color, marker="x", ms=6, mew=1.5, zorder=5)


def _scale(axes: Axes, found: Sequence[Curve], look: CurveGraph, num_ticks: int = 7) -> str:
    """Set the axes, with about so many ticks: they are most of what drawing a hundred panels takes.

    Returns the scale of the y axis in words, empty for a linear one. It is that of the page: loss is
    logarithmic where it spans more than a factor of ten, and so is the distance of an accuracy from 100 %, or
    the runs that are worth telling apart would share the last millimeter.
    """
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=num_ticks - 1, integer=True))
    axes.margins(x=0.02)
    axes.set_xlim(left=0)
    scale = scale_of(_extremes(found).values, look.metric.kind)
    if scale.kind == "log":
        axes.set_yscale("log")
    elif scale.kind == "log error":
        axes.set_yscale(
            "function",
            functions=(
                lambda accuracy: -np.log10(np.maximum(100 - np.asarray(accuracy), scale.floor)),
                lambda position: 100 - 10.0 ** -np.asarray(position),
            ),
        )
    axes.set_yticks(*zip(*scale.labels(num_ticks), strict=True))
    axes.set_yticks([], minor=True)
    axes.set_ylim(scale.low, scale.high)
    return SCALE_WORDS[scale.kind]
