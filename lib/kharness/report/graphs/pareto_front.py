"""Quality against its price in time, memory, energy or money; the front is what no other variant beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import (
    ALARM,
    INK,
    PALETTE,
    SOFT,
    canvas,
    notes,
    nothing_to_draw,
)
from kharness.report.metrics import Metric, metric_named
from kharness.report.pareto import Front
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Quality and its price"
# A row each.
MAX_WORKLOADS = 8
# Above this only the front has names.
MAX_NAMED = 14


def numbers(summary: Summary) -> Numbers:
    """Means of each variant over its complete runs, in the units of the axes."""
    rows: list[list[str | float | None]] = []
    for front in summary.conclusions.fronts:
        quality, cost = metric_named(front.quality), metric_named(front.cost)
        for variant, (good, price) in front.points.items():
            rows.append(
                [
                    *(front.workload, variant, quality.name, good * quality.scale),
                    *(cost.name, price * cost.scale, _yes(variant in front.members)),
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
        what = "no complete run has both a result and a cost yet"
        return nothing_to_draw(TITLE, summary.title, summary, what)
    extra = notes(summary, [])
    workloads = list(dict.fromkeys(front.workload for front in fronts))
    costs = list(dict.fromkeys(front.cost for front in fronts))
    if len(workloads) > MAX_WORKLOADS:
        extra.append(f"the first {MAX_WORKLOADS} of {len(workloads)} workloads; the CSV has all")
        workloads = workloads[:MAX_WORKLOADS]
    quality = metric_named(fronts[0].quality)
    corner = "upper" if quality.higher_is_better else "lower"
    subtitle = (
        f"{summary.title}   better is to the {corner} left\n"
        "filled: on the front, no other variant is as good for less   hollow: beaten   "
        "means of complete runs, whatever their spread"
    )
    rows, columns = len(workloads), len(costs)
    width = max(9.4, 5.2 * columns + 0.6)  # the words above need as much
    figure = canvas(width, 3.5 * rows + 0.55 * (rows - 1), TITLE, subtitle, extra)
    figure.subplots_adjust(wspace=0.28, hspace=0.3, right=0.97)
    if rows > 1:
        figure.subplots_adjust(top=1 - 1.2 / figure.get_figheight())  # room for the first title
    for front in fronts:
        if front.workload in workloads:
            place = workloads.index(front.workload) * columns + costs.index(front.cost) + 1
            axes = figure.add_subplot(rows, columns, place)
            if rows > 1:
                axes.set_title(front.workload, fontsize=9, loc="left", pad=4)
            _draw_front(axes, front, quality)
    return figure


def _draw_front(axes: Axes, front: Front, quality: Metric) -> None:
    cost = metric_named(front.cost)
    points = {
        name: (price * cost.scale, good * quality.scale) for name, (good, price) in front.points.items()
    }
    members = sorted((points[name], name) for name in front.members)
    beaten = [(point, name) for name, point in points.items() if name in front.dominated]
    for (x, y), _ in beaten:
        axes.plot([x], [y], "o", ms=6, mfc="white", mec=SOFT, mew=1.2, zorder=3)
    xs, ys = [x for (x, _), _ in members], [y for (_, y), _ in members]
    axes.plot(xs, ys, drawstyle="steps-post", color=PALETTE[0], lw=1.2, alpha=0.6, zorder=2)
    axes.plot(xs, ys, "o", ms=8, color=PALETTE[0], mec="white", mew=1, zorder=4)
    if max(x for x, _ in points.values()) > 10 * min(x for x, _ in points.values()) > 0:
        axes.set_xscale("log")
    axes.margins(0.16)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_xlabel(cost.label)
    axes.set_ylabel(quality.label)
    if front.unmeasured:
        lead = f"not measured: {len(front.unmeasured)} of {len(front.unmeasured) + len(points)} variants"
        axes.text(1, 1.01, lead, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=ALARM)
    named = [(point, name, INK) for point, name in members]
    if len(points) <= MAX_NAMED:
        named += [(point, name, SOFT) for point, name in beaten]
    _name_points(axes, named, list(points.values()))


def _name_points(
    axes: Axes,
    named: Sequence[tuple[tuple[float, float], str, str]],
    points: Sequence[tuple[float, float]],
) -> None:
    """Write each name where it covers neither a point nor another name; where none is free, nowhere."""
    from matplotlib.patheffects import withStroke

    figure = axes.figure.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    halo = [withStroke(linewidth=3, foreground="white")]
    places = [(9, 0, "left", "center"), (-9, 0, "right", "center"), (0, 9, "center", "bottom")]
    places += [(0, -9, "center", "top"), (7, 7, "left", "bottom"), (7, -7, "left", "top")]
    dots = [axes.transData.transform(point) for point in points]
    frame = axes.get_window_extent()
    taken: list[Sequence[float]] = []
    for point, name, colour in named:
        for dx, dy, across, along in places:
            text = axes.annotate(
                name,
                point,
                xytext=(dx, dy),
                textcoords="offset points",
                ha=across,
                va=along,
                fontsize=8.5,
                color=colour,
                zorder=5,
                path_effects=halo,
            )
            box = text.get_window_extent().padded(1)
            inside = box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= frame.y1
            if inside and not any(box.contains(*dot) for dot in dots) and not _overlaps(box.extents, taken):
                taken.append(box.extents)
                break
            text.remove()


def _overlaps(box: Sequence[float], taken: Sequence[Sequence[float]]) -> bool:
    x0, y0, x1, y1 = box
    return any(x0 < right and left < x1 and y0 < top and bottom < y1 for left, bottom, right, top in taken)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
