"""A plot as data and words, and as paths of a page: they stretch with the frame, and its words do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

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
    style: str = ""


@dataclass(frozen=True)
class Plot:
    """Lines, areas and points in one frame with all of its words: drawn by the page and as a PNG."""

    name: str
    title: str
    x_label: str
    strands: Sequence[Strand]
    x: Scale
    y: Scale
    said: Sequence[str] = ()
    """Notes below it."""
    quantity: str = ""
    """Words that the title lacks: a scale of logarithms, or what is drawn."""
    names: Sequence[tuple[float, float, str]] = ()
    """Words beside points: place in percent from the left and from the top."""
    faint_names: Sequence[tuple[float, float, str]] = ()
    """Those of points that matter less, where there is room."""
    names_one: bool = False
    """Whether a single line is named, too: one of several that could be there."""
    in_words: str = ""
    """Alternative text, where it is not where the lines end."""
    named_before: ClassVar[float] = 55.0
    """Percent from the left beyond which a name is left of its point."""

    @cached_property
    def lines(self) -> Sequence[Strand]:
        """One strand of each label, the mean if there is one, in the order of the labels."""
        named = [one for one in self.strands if one.kind != "other" and one.label]
        of_label = {one.label: one for one in sorted(named, key=lambda one: one.kind == "mean")}
        return [of_label[label] for label in dict.fromkeys(one.label for one in named)]

    @cached_property
    def legend(self) -> Sequence[tuple[str, int]]:
        """Labels with their colors; none for a single line."""
        few = len(self.lines) < (1 if self.names_one else 2)
        return [] if few else [(one.label, one.color) for one in self.lines]

    @cached_property
    def ends(self) -> Sequence[tuple[float, str, int]]:
        """Labels at the ends of lines: place in percent from the top, text and color."""
        return _ends(self.lines, self.y) if self.legend else []

    @property
    def alt(self) -> str:
        """Alternative text."""
        lines = self.lines or [one for one in self.strands if one.ys]
        ends = [
            f"{one.label or 'it'} ends at {last:.4g}" for one in lines[:8] if (last := _last(one)) is not None
        ]
        said = f": {', '.join(ends)}" if ends else ""
        return self.in_words or f"{self.title} by {self.x_label}{said}."

    @property
    def paths(self) -> Sequence[PlotPath]:
        """Outlines in thousandths of the frame."""
        return [path for one in self.strands for path in _paths(one, self.x, self.y)]

    @property
    def x_ticks(self) -> Sequence[tuple[float, str]]:
        """Places in percent from the left."""
        return without_neighbors(self.x.ticks())

    @property
    def y_ticks(self) -> Sequence[tuple[float, str]]:
        """Places in percent from the top."""
        return [(100 - at, text) for at, text in self.y.ticks(7)]


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
    """Return strands in one frame; of a scale that is only named the ends are those of the data."""
    values = [value for one in strands for value in (*one.ys, *one.lows, *one.highs) if value == value]
    y = scale if isinstance(scale, Scale) else scale_of(values, scale)
    xs = [value for one in strands if one.xs for value in (one.xs[0], one.xs[-1])]
    x = Scale("linear", min(xs), max(xs)) if max(xs) > min(xs) else scale_of(xs)
    return Plot(name, title, x_label, strands, x, y, said, SCALE_WORDS[y.kind], names_one=names_one)


def _paths(one: Strand, x: Scale, y: Scale) -> list[PlotPath]:
    if one.titles:
        at = zip(one.xs, one.ys, one.titles, strict=True)
        # A line of no length with round caps is a dot, as wide as the line at any scale (SVG 2, 13.5.4).
        return [PlotPath(one.kind, f"M{x.at(a)} {SIZE - y.at(b)}h0", title=title) for a, b, title in at]
    color = "other" if one.color < 0 else f"c{one.color}"
    found = []
    if any(low < high for low, high in zip(one.lows, one.highs, strict=True)):
        ahead, back = _points(one.xs, one.highs, x, y), _points(one.xs, one.lows, x, y)
        areas = [_outline([*high, *reversed(low)]) + "Z" for high, low in zip(ahead, back, strict=True)]
        found.append(PlotPath(f"band {color}", "".join(areas)))
    parts = _points(one.xs, one.ys, x, y) if one.ys else []
    if parts:
        label = one.label if one.kind == "mean" else ""
        style = _striped(one.turn) if one.turn[1] > 1 else ""
        found.append(PlotPath(f"{one.kind} {color}", "".join(map(_outline, parts)), label, style=style))
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


# Widths of a line: a stripe of it where others are equal.
_STRIPE = 5.0


def in_turns(strands: Sequence[Strand]) -> tuple[Sequence[Strand], Sequence[str]]:
    """Return the strands with equal lines in stripes, so that the last hides no other; and words for them."""
    equal: dict[object, list[Strand]] = {}
    for one in strands:
        if one.kind == "mean":
            equal.setdefault((tuple(one.xs), tuple(one.ys)), []).append(one)
    turns = {id(one): (i, len(some)) for some in equal.values() for i, one in enumerate(some)}
    names = ["; ".join(one.label for one in some) for some in equal.values() if len(some) > 1]
    found = [replace(one, turn=turns.get(id(one), one.turn)) for one in strands]
    return found, [f"Striped: exactly equal lines ({', '.join(names)})."] if names else []


def stripes(turn: tuple[int, int]) -> tuple[float, float, float]:
    """Return offset, stripe and gap in widths of a line: together equal lines fill what one alone would."""
    number, of = turn
    return -number * _STRIPE % (of * _STRIPE), _STRIPE, (of - 1) * _STRIPE


def _striped(turn: tuple[int, int]) -> str:
    offset, stripe, gap = (2.2 * one for one in stripes(turn))
    return f"stroke-dasharray:{stripe:g} {gap:g};stroke-dashoffset:{offset:g};stroke-linecap:butt"


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
    # Labels have only been moved down; all go up again as far as the last one has left the frame.
    beyond = max(0.0, placed[-1][0] - 100) if placed else 0.0
    return [(round(at - beyond, 1), label, color) for at, label, color in placed]


def _last(one: Strand) -> float | None:
    return next((value for value in reversed(one.ys) if not math.isnan(value)), None)


def without_neighbors(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the ticks whose words do not run into the one before."""
    kept: list[tuple[float, str]] = []
    for at, text in ticks:
        if not kept or at - kept[-1][0] > 4 + 2.2 * len(text):
            kept.append((at, text))
    return kept
