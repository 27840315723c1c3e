"""A plot as a page draws it: paths in a frame, and words around it that keep their size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kharness.report.curves import SCALE_WORDS, SIZE, Kind, Scale, Strand, scale_of

# Percent of the height between two labels at the ends of lines.
_LABEL_GAP = 7.5

MOST_IN_COLOR = 6
"""Lines of a plot with a color each: as many as the palette has."""
_MOST_IN_GRAY = 40
# Characters that have room there; where one is longer, a legend below has all.
_LONGEST_AT_END = 17


@dataclass(frozen=True)
class PlotPath:
    """The outline of a line or an area, with its look as CSS classes."""

    look: str
    outline: str
    label: str = ""
    title: str = ""
    """Text under the pointer."""


@dataclass(frozen=True)
class Plot:
    """Everything that the template needs; places are in percent of the frame."""

    name: str
    title: str
    x_label: str
    alt: str
    paths: Sequence[PlotPath]
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    ends: Sequence[tuple[float, str, int]]
    """Labels at the ends of lines: place from the top, text and color."""
    legend: Sequence[tuple[str, int]]
    x: Scale
    y: Scale
    names: Sequence[tuple[float, float, str]] = ()
    """Words beside points: place from the left and from the top."""
    said: Sequence[str] = field(default_factory=list)
    """Notes below it."""
    quantity: str = ""
    """Words that the title lacks: a scale of logarithms, or what is drawn."""


def plot_of(
    name: str,
    title: str,
    strands: Sequence[Strand],
    *,
    x_label: str = "step",
    scale: Kind | Scale = "linear",
    said: Sequence[str] = (),
    names_one: bool = False,
) -> Plot:
    """Draw strands in one frame; of a scale that is only named the ends are those of the data.

    A single line needs no name, unless it is one of several that could be there (`names_one`).
    """
    fewest = 1 if names_one else 2
    values = [value for one in strands for value in (*one.ys, *one.lows, *one.highs) if value == value]
    y = scale if isinstance(scale, Scale) else scale_of(values, scale)
    xs = [value for one in strands if one.xs for value in (one.xs[0], one.xs[-1])]
    x = Scale("linear", min(xs), max(xs)) if max(xs) > min(xs) else scale_of(xs)
    named = [one for one in strands if one.kind != "other" and one.label]
    lines = {one.label: one for one in sorted(named, key=lambda one: one.kind == "mean")}
    shown = list(dict.fromkeys(one.label for one in named))
    return Plot(
        name=name,
        title=title,
        x_label=x_label,
        alt=_alt(title, x_label, [lines[label] for label in shown] or [one for one in strands if one.ys]),
        paths=[path for one in strands for path in _paths(one, x, y)],
        x_ticks=without_neighbors(x.ticks()),
        y_ticks=[(100 - at, text) for at, text in y.ticks(7)],
        ends=_ends([lines[label] for label in shown], y) if len(shown) >= fewest else [],
        legend=[(lines[label].label, lines[label].color) for label in shown if len(shown) >= fewest],
        x=x,
        y=y,
        said=said,
        quantity=SCALE_WORDS[y.kind],
    )


def with_points(plot: Plot, points: Strand, titles: Sequence[str]) -> Plot:
    """Return a plot with a dot for each point of a strand that it was made of, each with its title."""
    at = zip(points.xs, points.ys, titles, strict=True)
    dots = [PlotPath("point", f"M{plot.x.at(x)} {SIZE - plot.y.at(y)}h0", title=title) for x, y, title in at]
    return replace(plot, paths=[*plot.paths, *dots])


def _paths(one: Strand, x: Scale, y: Scale) -> list[PlotPath]:
    if one.kind == "points":
        return []
    color = "other" if one.kind == "other" else f"c{one.color}"
    found = []
    if any(low < high for low, high in zip(one.lows, one.highs, strict=True)):
        ahead, back = _points(one.xs, one.highs, x, y), _points(one.xs, one.lows, x, y)
        areas = [_outline([*high, *reversed(low)]) + "Z" for high, low in zip(ahead, back, strict=True)]
        found.append(PlotPath(f"band {color}", "".join(areas)))
    parts = _points(one.xs, one.ys, x, y) if one.ys else []
    if parts:
        label = one.label if one.kind == "mean" else ""
        found.append(PlotPath(f"{one.kind} {color}", "".join(map(_outline, parts)), label))
        dots = "".join(f"M{a} {b}h0" for part in parts if one.dots or len(part) == 1 for a, b in part)
        if dots:
            found.append(PlotPath(f"dots {one.kind} {color}", dots))
    return found


def _points(xs: Sequence[float], ys: Sequence[float], x: Scale, y: Scale) -> list[list[tuple[int, int]]]:
    """Return the places of a line's points, in a part for each piece between its gaps."""
    parts: list[list[tuple[int, int]]] = [[]]
    for a, b in zip(xs, ys, strict=True):
        if math.isnan(b):
            parts.append([])
        else:
            parts[-1].append((x.at(a), SIZE - y.at(b)))
    return [part for part in parts if part]


def range_of(strands: Sequence[Strand]) -> Sequence[Strand]:
    """Return one area, in gray, that holds the lines and areas of all; some of them if their steps differ."""
    if not strands or len({tuple(one.xs) for one in strands}) != 1:
        return strands[:_MOST_IN_GRAY]
    lows = [_known(min, at) for at in zip(*(one.lows or one.ys for one in strands), strict=True)]
    highs = [_known(max, at) for at in zip(*(one.highs or one.ys for one in strands), strict=True)]
    return [Strand("", -1, "other", strands[0].xs, (), lows, highs)]


def _known(pick: Callable[[Iterable[float]], float], values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return pick(known) if known else math.nan


def _outline(points: Sequence[tuple[int, int]]) -> str:
    """Return an SVG path; a point that repeats the one before is left out."""
    kept = [point for i, point in enumerate(points) if i == 0 or point != points[i - 1]]
    return "M" + " ".join(f"{a} {b}" for a, b in kept)


def _ends(lines: Sequence[Strand], y: Scale) -> list[tuple[float, str, int]]:
    """Return labels where lines end, moved apart where they would lie on each other."""
    if max(len(one.label) for one in lines) > _LONGEST_AT_END:
        return []
    wanted = sorted(
        (100 - y.at(last) / (SIZE / 100), one.label, one.color)
        for one in lines
        if (last := _last(one)) is not None
    )
    placed: list[tuple[float, str, int]] = []
    for at, label, color in wanted:
        placed.append((max(at, placed[-1][0] + _LABEL_GAP) if placed else at, label, color))
    beyond = max(0.0, placed[-1][0] - 100) if placed else 0.0
    return [(round(at - beyond, 1), label, color) for at, label, color in placed]


def _alt(title: str, x_label: str, lines: Sequence[Strand]) -> str:
    ends = ", ".join(
        f"{one.label or 'it'} ends at {last:.4g}" for one in lines[:8] if (last := _last(one)) is not None
    )
    return f"{title} by {x_label}: {ends}." if ends else f"{title} by {x_label}."


def _last(one: Strand) -> float | None:
    return next((value for value in reversed(one.ys) if not math.isnan(value)), None)


def without_neighbors(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the ticks whose words do not run into the one before."""
    kept: list[tuple[float, str]] = []
    for at, text in ticks:
        if not kept or at - kept[-1][0] > 4 + 2.2 * len(text):
            kept.append((at, text))
    return kept
