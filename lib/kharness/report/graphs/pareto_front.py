"""Quality against its price in time, memory, energy or money; the front is what nothing is shown to beat."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import ALARM, INK, PALETTE, SOFT, canvas, notes, nothing_to_draw
from kharness.report.judging.pareto import Front
from kharness.report.metrics import Metric, metric_named
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

TITLE = "Quality and its price"
# A row each.
MAX_WORKLOADS = 8
# Above this only the fronts have numbers, and no more of them than this.
MAX_NAMED = 40
# Inches a line of the key.
KEY_LINE = 0.175


def numbers(summary: Summary) -> Numbers:
    """Means of each variant over its complete runs, in the units of the axes."""
    rows: list[list[str | float | None]] = []
    for front in summary.conclusions.fronts:
        quality, cost = metric_named(front.quality), metric_named(front.cost)
        for variant, (good, price) in front.points.items():
            rows.append(
                [
                    *(front.workload, variant, quality.name, good * quality.scale),
                    *(cost.name, price * cost.scale, "yes" if variant in front.members else "no"),
                    front.dominated.get(variant),
                ]
            )
    return Numbers(
        ["workload", "variant", "quality", "quality_value", "cost", "cost_value", "on_front", "beaten_by"],
        rows,
    )


def draw(summary: Summary) -> Figure:
    fronts = [front for front in summary.conclusions.fronts if front.points]
    if not fronts:
        unjudged = "".join({metric.unjudged for metric, _ in summary.conclusions.metrics.values()})
        what = unjudged or "no complete run has both a result and a cost yet"
        return nothing_to_draw(TITLE, summary.title, summary, what)
    extra = notes(summary, [])
    workloads = list(dict.fromkeys(front.workload for front in fronts))
    costs = list(dict.fromkeys(front.cost for front in fronts))
    if len(workloads) > MAX_WORKLOADS:
        extra.append(f"the first {MAX_WORKLOADS} of {len(workloads)} workloads; the CSV has all")
        workloads = workloads[:MAX_WORKLOADS]
    quality = metric_named(fronts[0].quality)
    fronts = [front for front in fronts if front.workload in workloads]
    key = _key(fronts)
    corner = "upper" if quality.higher_is_better else "lower"
    subtitle = (
        f"{summary.title}   better is to the {corner} left\n"
        "filled: on the front, nothing is shown to beat it   hollow: beaten   means of complete runs"
    )
    rows, columns = len(workloads), len(costs)
    key_width = 0.75 + 0.075 * max(len(name) for name in key)
    width = max(9.4, 4.6 * columns + 0.9 + key_width)  # the words above need as much
    height = max(3.5 * rows + 0.55 * (rows - 1), KEY_LINE * (len(key) + 1.5))
    figure = canvas(width, height, TITLE, subtitle, extra)
    figure.subplots_adjust(wspace=0.26, hspace=0.3, right=1 - key_width / width)
    if rows > 1:
        figure.subplots_adjust(top=1 - 1.2 / figure.get_figheight())  # room for the first title
    for front in fronts:
        place = workloads.index(front.workload) * columns + costs.index(front.cost) + 1
        axes = figure.add_subplot(rows, columns, place)
        if rows > 1:
            axes.set_title(front.workload, fontsize=9, loc="left", pad=4)
        _draw_front(axes, front, quality, key)
    _draw_key(figure, key, fronts, key_width)
    return figure


def _key(fronts: Sequence[Front]) -> Mapping[str, int]:
    """The number by which a variant is named in every panel; of many variants those of a front alone."""
    names = list(dict.fromkeys(name for front in fronts for name in front.points))
    if len(names) > MAX_NAMED:
        best = {name for front in fronts for name in front.members}
        names = [name for name in names if name in best][:MAX_NAMED]
    return {name: number for number, name in enumerate(names, start=1)}


def _draw_key(figure: Figure, key: Mapping[str, int], fronts: Sequence[Front], width: float) -> None:
    """Next to the panels: what each number stands for, dark where it is on a front."""
    best = {name for front in fronts for name in front.members}
    left = 1 - (width - 0.4) / figure.get_figwidth()
    top = figure.subplotpars.top
    for line, (name, number) in enumerate(key.items()):
        y = top - line * KEY_LINE / figure.get_figheight()
        look: Any = {"fontsize": 8.5, "va": "top", "color": INK if name in best else SOFT}
        figure.text(left - 0.1 / figure.get_figwidth(), y, str(number), ha="right", **look)
        figure.text(left, y, name, **look)


def _draw_front(axes: Axes, front: Front, quality: Metric, key: Mapping[str, int]) -> None:
    cost = metric_named(front.cost)
    points = {
        name: (price * cost.scale, good * quality.scale) for name, (good, price) in front.points.items()
    }
    members = sorted((points[name], name) for name in front.members)
    beaten = [(point, name) for name, point in points.items() if name in front.dominated]
    for (x, y), _ in beaten:
        axes.plot([x], [y], "o", ms=6, mfc="white", mec=SOFT, mew=1.2, zorder=3)
    xs, ys = [x for (x, _), _ in members], [y for (_, y), _ in members]
    stairs = _stairs([point for point, _ in members], higher_is_better=bool(quality.higher_is_better))
    axes.plot(
        *zip(*stairs, strict=True), drawstyle="steps-post", color=PALETTE[0], lw=1.2, alpha=0.6, zorder=2
    )
    axes.plot(xs, ys, "o", ms=8, color=PALETTE[0], mec="white", mew=1, zorder=4)
    _set_limits(axes, list(points.values()), quality)
    axes.set_xlabel(cost.label)
    axes.set_ylabel(quality.label)
    if front.unmeasured:
        lead = f"not measured: {len(front.unmeasured)} of {len(front.unmeasured) + len(points)} variants"
        axes.text(1, 1.01, lead, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=ALARM)
    _number_points(axes, members, beaten, key)


def _stairs(points: Sequence[tuple[float, float]], *, higher_is_better: bool) -> list[tuple[float, float]]:
    """Return the front's points, cheapest first, whose mean is better than that of all cheaper ones."""
    sign, found = (1 if higher_is_better else -1), list(points[:1])
    for point in points[1:]:
        if sign * point[1] > sign * found[-1][1]:
            found.append(point)
    return found


def _set_limits(axes: Axes, points: Sequence[tuple[float, float]], quality: Metric) -> None:
    """Costs from zero, so that lengths compare as costs do, or by order of magnitude; quality where it is."""
    costs, qualities = [x for x, _ in points], [y for _, y in points]
    if max(costs) > 10 * min(costs) > 0:
        axes.set_xscale("log")
        axes.margins(x=0.12)
    else:
        axes.set_xlim(0, 1.12 * max(costs) or 1)
    low, high = min(qualities), max(qualities)
    margin = 0.12 * (high - low) or 0.02 * abs(high) or 1.0
    bottom, top = low - margin, high + margin
    if quality.shown_unit == "%":  # no axis promises more than all
        top = min(top, 100 + 0.03 * (100 - bottom))
    axes.set_ylim(bottom, top)
    axes.ticklabel_format(axis="y", useOffset=False)


def _number_points(
    axes: Axes,
    members: Sequence[tuple[tuple[float, float], str]],
    beaten: Sequence[tuple[tuple[float, float], str]],
    key: Mapping[str, int],
) -> None:
    """Write each number where it covers nothing and is nearest to its own point; if nowhere, not at all."""
    from matplotlib.patheffects import withStroke

    axes.get_xlim()  # transData takes in a log scale's margins only when the limits are read
    halo = [withStroke(linewidth=2.5, foreground="white")]
    places = [(7, 0, "left", "center"), (0, 6, "center", "bottom"), (-7, 0, "right", "center")]
    places += [(0, -6, "center", "top"), (6, 6, "left", "bottom"), (6, -6, "left", "top")]
    places += [(-6, 6, "right", "bottom"), (-6, -6, "right", "top")]
    dots = {point: axes.transData.transform(point).tolist() for point, _ in [*members, *beaten]}
    frame = axes.get_window_extent()
    top = frame.y1 + 12  # there is room above a panel
    taken: list[Sequence[float]] = []
    named = [(point, key[name], INK) for point, name in members if name in key]
    named += [(point, key[name], SOFT) for point, name in beaten if name in key]
    for point, number, color in named:
        for dx, dy, across, along in places:
            text = axes.annotate(
                str(number),
                point,
                xytext=(dx, dy),
                textcoords="offset points",
                ha=across,
                va=along,
                fontsize=8.5,
                fontweight="bold" if color == INK else "normal",
                color=color,
                zorder=5,
                path_effects=halo,
            )
            box = text.get_window_extent().padded(2)
            inside = box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= top
            free = not any(box.contains(*dot) for dot in dots.values()) and not _overlaps(box.extents, taken)
            if inside and free and _is_nearest(box, dots[point], dots.values()):
                taken.append(box.extents)
                break
            text.remove()


def _is_nearest(box: Bbox, own: Sequence[float], dots: Collection[Sequence[float]]) -> bool:
    """Whether no other point is nearer to the middle of a box."""
    middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
    return all(math.dist(middle, own) <= math.dist(middle, dot) for dot in dots)


def _overlaps(box: Sequence[float], taken: Sequence[Sequence[float]]) -> bool:
    x0, y0, x1, y1 = box
    return any(x0 < right and left < x1 and y0 < top and bottom < y1 for left, bottom, right, top in taken)
