"""Many panels with the same axes, drawn as lines and texts of the figure.

Nearly all that a hundred of matplotlib's Axes take is for ticks and labels that are the same, or not shown.
So one of them, the template, has the scales, limits and ticks, and lends them to all panels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kharness.report.graphs._canvas import GRID, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Points = NDArray[np.float64]

TICK, LABEL_PAD = 3.5, 3.5
"""Points: the length of a tick, and from there to its label."""
LABEL_SIZE = 9.5
DIGIT = 0.64
"""The width of a digit of DejaVu Sans, in font sizes."""


class Panels:
    """Places in a figure, each with the axes of the template, which is taken out of it."""

    def __init__(self, figure: Figure, template: Axes, number: int) -> None:
        self._figure = figure
        grid = template.get_gridspec()
        assert grid is not None
        self._columns = grid.ncols
        self._boxes = [grid[i].get_position(figure) for i in range(number)]
        self._scale = template.transScale
        (self._low, self._high) = self._scale.transform(template.viewLim.get_points())
        self._ticks = [_ticks(axis) for axis in (template.xaxis, template.yaxis)]
        width, height = figure.get_size_inches() * 72
        self._point = np.array([1 / width, 1 / height])
        template.remove()

    def place(self, panel: int, steps: Sequence[float], values: Sequence[float]) -> Points:
        """Where points of a panel are in the figure, as rows of x and y; NaN stays a gap."""
        box = self._boxes[panel]
        shares = (self._scale.transform(np.column_stack([steps, values])) - self._low) / (
            self._high - self._low
        )
        found: Points = [box.x0, box.y0] + shares * [box.width, box.height]
        return found

    def lines(self, places: Sequence[Points], **look: Any) -> None:
        """Draw many lines that look the same."""
        from matplotlib.collections import LineCollection

        if places:
            drawn = LineCollection(places, transform=self._figure.transFigure, **look)
            self._figure.add_artist(drawn)

    def points(self, places: Sequence[Points], **look: Any) -> None:
        """Draw the points of all of these, or, with a `ls`, each as a line."""
        from matplotlib.lines import Line2D

        if places:
            x, y = np.concatenate(places).T
            drawn = Line2D(x, y, transform=self._figure.transFigure, **{"ls": "", **look})
            self._figure.add_artist(drawn)

    def area(self, outline: Points, **look: Any) -> None:
        """Fill an outline."""
        from matplotlib.patches import Polygon

        self._figure.add_artist(Polygon(outline, transform=self._figure.transFigure, **look))

    def frames(self, titles: Sequence[str], x_label: str, y_label: str) -> None:
        """Draw axes, grid and title of each panel, labels of the left and the lowest ones alone."""
        (x_ticks, x_texts, _), (y_ticks, y_texts, _) = self._ticks
        (left, bottom), (right, top) = self._low, self._high
        grid, edges = [], []
        for i, (box, title) in enumerate(zip(self._boxes, titles, strict=True)):
            corner, size = np.array([box.x0, box.y0]), np.array([box.width, box.height])
            x = corner[0] + (x_ticks - left) / (right - left) * size[0]
            y = corner[1] + (y_ticks - bottom) / (top - bottom) * size[1]
            tick_x, tick_y = TICK * self._point
            grid += [np.array([[at, box.y0], [at, box.y1]]) for at in x]
            grid += [np.array([[box.x0, at], [box.x1, at]]) for at in y]
            edges += [np.array([[box.x0, box.y1], [box.x0, box.y0], [box.x1, box.y0]])]
            edges += [np.array([[at, box.y0], [at, box.y0 - tick_y]]) for at in x]
            edges += [np.array([[box.x0, at], [box.x0 - tick_x, at]]) for at in y]
            above = box.y1 + 4 * self._point[1]
            self._figure.text(box.x0, above, title, fontsize=8.5, linespacing=1.1, va="baseline")
            if i % self._columns == 0:
                self._label_left(box, list(zip(y, y_texts, strict=True)), y_label)
            if i + self._columns >= len(self._boxes):
                self._label_below(box, list(zip(x, x_texts, strict=True)), x_label)
        self.lines(grid, colors=GRID, linewidths=0.8, zorder=0.5, snap=True)
        self.lines(edges, colors=SOFT, linewidths=0.8, zorder=2.5, snap=True)

    def _label_left(self, box: Any, ticks: Sequence[tuple[float, str]], label: str) -> None:
        away, text = TICK + LABEL_PAD, self._figure.text
        for at, words in ticks:
            x = box.x0 - away * self._point[0]
            text(x, at, words, fontsize=LABEL_SIZE, color=INK, ha="right", va="center_baseline")
        widest = max((len(words) for _, words in ticks), default=0) * DIGIT * LABEL_SIZE
        x, middle = box.x0 - (away + widest + 4) * self._point[0], (box.y0 + box.y1) / 2
        text(x, middle, label, fontsize=9, color=INK, rotation=90, ha="right", va="center")
        if multiple := self._ticks[1][2]:
            text(box.x0 - away * self._point[0], box.y1, multiple, fontsize=8, color=INK, ha="right")

    def _label_below(self, box: Any, ticks: Sequence[tuple[float, str]], label: str) -> None:
        away, text = TICK + LABEL_PAD, self._figure.text
        for at, words in ticks:
            y = box.y0 - away * self._point[1]
            text(at, y, words, fontsize=LABEL_SIZE, color=INK, ha="center", va="top")
        y = box.y0 - (away + 0.95 * LABEL_SIZE + 4) * self._point[1]
        words = f"{label} ({self._ticks[0][2]})" if self._ticks[0][2] else label
        text((box.x0 + box.x1) / 2, y, words, fontsize=10, color=INK, ha="center", va="top")


def _ticks(axis: Any) -> tuple[Points, list[str], str]:
    """Where the ticks within the limits are on the axis' scale, their labels, and the factor of all."""
    low, high = sorted(axis.get_view_interval())
    at = np.array([tick for tick in axis.get_majorticklocs() if low <= tick <= high])
    labels = axis.get_major_formatter().format_ticks(at)
    return axis.get_transform().transform(at), labels, axis.get_major_formatter().get_offset()


# In line widths: a stripe is longer than the dots of a run that did not complete.
STRIPE = 5.0
DOT, DOT_GAP = 1.0, 1.5
# What each marker of a ring is wider than the next within it.
RING = 4.0


@dataclass(frozen=True)
class Turn:
    """Which of how many equal lines one is."""

    number: int = 0
    of: int = 1

    def dashes(self, *, dotted: bool = False) -> Any:
        """matplotlib's `ls`: together the equal lines fill what one alone would."""
        on, gap = (DOT, DOT_GAP) if dotted else (STRIPE, 0.0)
        period = self.of * (on + gap)
        if period == on:
            return "-"
        # The offset is where in its own pattern a line begins.
        return (-self.number * (on + gap) % period, (on, period - on))

    def markers(self, num_points: int, size: float) -> dict[str, Any]:
        """matplotlib's marker options: at points in turns, or in rings where there are fewer of them."""
        if num_points >= self.of:
            return {"ms": size, "markevery": (self.number, self.of)}
        return {"ms": size + RING * (self.of - 1 - self.number), "clip_on": False}


ALONE = Turn()


def turns(keys: Sequence[Hashable]) -> list[Turn]:
    """Return each line's turn among those with an equal key."""
    of, met = Counter(keys), Counter[Hashable]()
    found = []
    for key in keys:
        found.append(Turn(met[key], of[key]))
        met[key] += 1
    return found


def same_as(keys: Sequence[Hashable], labels: Sequence[str]) -> list[str]:
    """Return for each line the label of the first equal one; empty for that one itself."""
    first: dict[Hashable, str] = {}
    return [
        "" if first.setdefault(key, label) == label else first[key]
        for key, label in zip(keys, labels, strict=True)
    ]
