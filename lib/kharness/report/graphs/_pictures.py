"""Plots and rows of a report as one figure: the same lines, marks, words and places as on its page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kharness.report.curves import SCALE_WORDS, Scale, Strand
from kharness.report.graphs import Figure
from kharness.report.graphs._canvas import (
    ALARM,
    BACKDROP,
    GOOD,
    HEAD,
    INK,
    LEFT,
    MARKERS,
    PALETTE,
    SOFT,
    canvas,
    folded,
    notes,
    nothing_to_draw,
)
from kharness.report.plots.plot import Plot, stripes
from kharness.report.plots.rows import RowPlot
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Picture = Plot | RowPlot

MOST_ROWS = 120
"""Rows of a picture: more are a table, and that is the CSV."""

# Inches: a frame, a row of rows, a line of words, and a letter of them.
_WIDTH, _HEIGHT = 6.6, 3.6
_ROW, _LINE, _LETTER = 0.27, 0.165, 0.074
_LABEL = 40
"""Characters of a line of a name."""

_LINES: Mapping[str, Mapping[str, Any]] = {
    "mean": {"lw": 2.2, "zorder": 4, "solid_capstyle": "round"},
    "run": {"lw": 1.0, "zorder": 3, "alpha": 0.55},
    "unfinished": {"lw": 1.3, "zorder": 3, "ls": (0, (1, 1.5))},
    "other": {"lw": 0.8, "zorder": 1},
    "limit": {"lw": 1.2, "color": SOFT, "ls": (0, (3, 2)), "zorder": 1},
    "point": {"ls": "", "marker": "o", "ms": 8, "mec": "white", "zorder": 5},
    "point beaten": {"ls": "", "marker": "o", "ms": 6, "mfc": "white", "mec": SOFT, "zorder": 4},
}
_OF_VERDICTS = {"": PALETTE[0], "better": GOOD, "the same": GOOD, "worse": ALARM}
"""Colors of rows; those of other verdicts are SOFT."""
_DOTS: Mapping[str, Mapping[str, Any]] = {
    "point": {"marker": "o", "ms": 6},
    "point soft": {"marker": "o", "ms": 6, "alpha": 0.55, "mec": "none"},
    "point hollow": {"marker": "o", "ms": 6, "mfc": "white"},
    **{f"point c{i}": {"marker": MARKERS[i], "ms": 6, "color": color} for i, color in enumerate(PALETTE)},
    "missed": {"marker": "x", "ms": 6, "mew": 1.5, "color": ALARM},
    "dot": {"marker": "o", "ms": 8},
    "dot hollow": {"marker": "o", "ms": 8, "mfc": "white"},
}
_BARS: Mapping[str, Mapping[str, Any]] = {
    "thin": {"height": 0.05, "alpha": 0.8},
    "thick": {"height": 0.34, "alpha": 0.4},
    "bar": {"height": 0.22, "alpha": 0.45},
    "stack waits": {"height": 0.62, "hatch": "////", "fill": False, "ec": SOFT},
    **{f"stack c{number}": {"height": 0.62, "color": color} for number, color in enumerate(PALETTE)},
}
_UPRIGHT: Mapping[str, tuple[float, Mapping[str, Any]]] = {
    "median": (0.32, {"lw": 2.4, "color": PALETTE[0], "zorder": 4}),
    "zero": (0.5, {"lw": 1.0, "color": INK, "zorder": 1}),
    "limit": (0.5, {"lw": 1.2, "color": SOFT, "ls": (0, (3, 2)), "zorder": 1}),
}


def figure_of(
    summary: Summary,
    title: str,
    pictures: Sequence[Picture],
    *,
    nothing: str,
    without: Sequence[str] = (),
    said: Sequence[str] = (),
) -> Figure:
    """Return the pictures below one another, plots alone side by side; of none one that says `nothing`.

    `without` are the names of runs that have no numbers, `said` is what else a reader must not overlook.
    """
    if not pictures:
        return nothing_to_draw(title, summary.title, summary, nothing)
    plots_alone = len(pictures) > 1 and all(isinstance(one, Plot) for one in pictures)
    small = plots_alone and len(pictures) > 4
    columns = 4 if small else 2 if plots_alone else 1
    left, right = max(map(_left, pictures)), max(map(_right, pictures))
    # Of many small ones the words beside the last frame are those of all.
    beside, right = (right, 0.1) if small else (0.0, right)
    # All in inches; matplotlib wants shares of the figure, whose size is known only once all is added up.
    share = {1: 1.0, 2: 0.75, 4: 0.45}[columns]
    wide, tall = share * _WIDTH, share * _HEIGHT
    across = left + wide + right
    width = columns * across + beside
    letters = int((across - LEFT) / _LETTER)
    heads = [_wrapped(_heading(one, title), int(letters / 1.15)) for one in pictures]
    feet = [_wrapped("" if isinstance(one, Plot) else one.caption, letters) for one in pictures]
    above = [
        _LINE * len(head) + (0.3 if isinstance(one, RowPlot) and one.legend else 0.08)
        for one, head in zip(pictures, heads, strict=True)
    ]
    heights = [tall if isinstance(one, Plot) else 0.2 + _ROW * len(one.rows) for one in pictures]
    places = [
        up + high + 0.55 + _LINE * len(foot) for up, high, foot in zip(above, heights, feet, strict=True)
    ]
    rows = [max(places[i : i + columns]) for i in range(0, len(places), columns)]
    lines = dict.fromkeys(one for plot in pictures if isinstance(plot, Plot) for one in plot.said)
    subtitle = "\n".join([summary.title, *_wrapped("  ".join(lines), columns * letters)])
    head = 0.16 * (subtitle.count("\n") - 1)
    figure = canvas(width, sum(rows) + head - 0.6, title, subtitle, [*notes(summary, without), *said])
    full = figure.get_figheight()
    for i, one in enumerate(pictures):
        top = full - HEAD - head - sum(rows[: i // columns]) - above[i]
        from_left = left + i % columns * across
        box = (from_left / width, (top - heights[i]) / full, wide / width, heights[i] / full)
        axes = figure.add_axes(box)
        if isinstance(one, Plot):
            _draw_plot(axes, one, _beside(one, title), small, names=not small or i == columns - 1)
        else:
            _draw_rows(axes, one)
        axes.set_xlabel(_label(one, title))
        at = from_left if small else LEFT + i % columns * across
        below = {"fontsize": 8.5, "va": "top", "color": SOFT, "linespacing": 1.35}
        figure.text(at / width, (top - heights[i] - 0.45) / full, "\n".join(feet[i]), **below)
        figure.text(
            at / width,
            (top + above[i]) / full,
            "\n".join(heads[i]),
            fontsize=9 if small else 10.5,
            va="top",
            color=INK,
            linespacing=1.2,
        )
    return figure


def _heading(one: Picture, title: str) -> str:
    """Return the title, where that of the figure is not the same."""
    return "" if one.title.startswith(title) else one.title


def _label(one: Picture, title: str) -> str:
    """Return the words of the lower axis."""
    if isinstance(one, Plot):
        return one.x_label
    return one.quantity or ("" if _heading(one, title) else one.title)


def _beside(one: Plot, title: str) -> str:
    """Return the words of the upright axis."""
    if one.quantity not in SCALE_WORDS.values():
        return one.quantity
    return ", ".join(filter(None, ("" if _heading(one, title) else one.title, one.quantity)))


def _wrapped(text: str, width: int) -> list[str]:
    return [line for part in text.split("\n") for line in textwrap.wrap(part, width)]


def _left(one: Picture) -> float:
    """Return inches for what is left of a frame."""
    return 1.0 if isinstance(one, Plot) else 0.4 + _LETTER * 1.06 * max(len(row.name) for row in one.rows)


def _right(one: Picture) -> float:
    """Return inches for what is right of it."""
    if isinstance(one, RowPlot):
        return 0.3 + _LETTER * max(len(row.words) for row in one.rows)
    words = [text for _, text, _ in one.ends] or [
        line for text, _ in one.legend for line in folded(text, _LABEL).split("\n")
    ]
    return 0.3 + (0.4 + _LETTER * max(map(len, words)) if words else 0.0)


def _draw_plot(axes: Axes, plot: Plot, y_label: str, small: bool, *, names: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    for one in plot.strands:
        _draw_strand(axes, one, plot.x, plot.y)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    x_ticks, y_ticks = (ticks[:: 1 + small] for ticks in (plot.x_ticks, plot.y_ticks))
    axes.set_xticks([at / 100 for at, _ in x_ticks], [text for _, text in x_ticks])
    axes.set_yticks([1 - at / 100 for at, _ in y_ticks], [text for _, text in y_ticks])
    axes.set_ylabel(y_label)
    looks = ((plot.names, {"color": PALETTE[0]}), (plot.faint_names, {"color": SOFT, "fontsize": 8}))
    for left, top, text, look in [(*name, look) for names_of, look in looks for name in names_of]:
        before = left > plot.named_before
        axes.annotate(
            text,
            (left / 100, 1 - top / 100),
            xytext=(-8 if before else 8, 0),
            textcoords="offset points",
            ha="right" if before else "left",
            va="center",
            zorder=6,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            **look,
        )
    for top, text, color in plot.ends if names and not small else ():
        axes.text(1.015, 1 - top / 100, text, color=PALETTE[color], va="center", fontweight="bold")
    if plot.legend and names and (small or not plot.ends):
        handles = [
            Line2D([], [], color=PALETTE[color], lw=2.4, label=folded(text, _LABEL))
            for text, color in plot.legend
        ]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4)


def _draw_strand(axes: Axes, one: Strand, x: Scale, y: Scale) -> None:
    color = BACKDROP if one.color < 0 else PALETTE[one.color]
    xs = [x.share(value) for value in one.xs]
    if one.lows:
        lows, highs = ([y.share(value) for value in ends] for ends in (one.lows, one.highs))
        axes.fill_between(xs, lows, highs, color=color, alpha=0.17, lw=0, zorder=2)
    if not one.ys:
        return
    ys = [y.share(value) for value in one.ys]
    look = {"color": color, "clip_on": False, **_LINES[one.kind]}
    if one.turn[1] > 1:
        offset, *dashes = stripes(one.turn)
        look |= {"ls": (offset, dashes), "dash_capstyle": "butt"}
    axes.plot(xs, ys, **look)
    # A value between two gaps has a line to neither side: without a dot it would not be seen.
    known = [value == value for value in [float("nan"), *one.ys, float("nan")]]
    alone = [i for i in range(len(ys)) if known[i : i + 3] == [False, True, False]]
    if not one.titles and (shown := range(len(ys)) if one.dots else alone):
        at = [[values[i] for i in shown] for values in (xs, ys)]
        axes.plot(*at, MARKERS[one.color], color=color, ms=5, zorder=4, clip_on=False)
    if one.kind == "unfinished":
        axes.plot(xs[-1:], ys[-1:], "x", color=color, ms=6, mew=1.5, zorder=5, clip_on=False)


def _draw_rows(axes: Axes, picture: RowPlot) -> None:
    from matplotlib.patches import Patch

    looks: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for y, row in enumerate(picture.rows):
        axes.text(102, y, row.words, va="center", fontsize=8.5, color=INK)
        for mark in row.marks:
            looks.setdefault((mark.look, row.verdict), []).append((y, mark.left, mark.width))
    # All of a look at once: a hundred variants are four hundred calls else.
    for (look, verdict), marks in looks.items():
        ys, lefts, widths = zip(*marks, strict=True)
        color = _OF_VERDICTS.get(verdict, SOFT)
        dots = {"ls": "", "color": color, "zorder": 4, "clip_on": False}
        if look in _DOTS:
            axes.plot(lefts, ys, **{**dots, **_DOTS[look]})
        elif look in _UPRIGHT:
            half, own = _UPRIGHT[look]
            axes.vlines(lefts, [y - half for y in ys], [y + half for y in ys], **own)
        else:
            name, *beyond = look.split(" beyond-")
            axes.barh(ys, widths, left=lefts, **{"color": color, "lw": 0, "zorder": 2, **_BARS[name]})
            for side in beyond:
                end, marker = (0.0, "<") if side == "left" else (100.0, ">")
                axes.plot([end] * len(ys), ys, marker=marker, ms=7, **dots)
    axes.set_yticks(range(len(picture.rows)), [row.name for row in picture.rows])
    # downwards: the first row is on top
    axes.set_ylim(len(picture.rows) - 0.4, -0.6)
    # Names of rows need no ticks, no grid and no axis.
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, 100)
    axes.set_xticks([at for at, _ in picture.ticks], [text for _, text in picture.ticks])
    if picture.legend:
        handles = [Patch(color=PALETTE[color], label=text) for text, color in picture.legend]
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, borderaxespad=0.2)
