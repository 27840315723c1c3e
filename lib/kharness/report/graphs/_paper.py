"""Pictures for a paper, drawn by a style file that its author edits: PDF and SVG of the same figure."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kharness.report.errors import ReportError
from kharness.report.graphs._canvas import folded
from kharness.report.judging.judgment import Comparison
from kharness.report.plots.plot import Plot

# Variants with more lines than this have no room for a legend inside a column.
_MOST_IN_LEGEND = 8

MOST_ROWS = 120
_PAGE = 6.0
"""Inches that a page has room for, with the caption."""
_LABEL = 26
"""Characters of a line of a name."""


def write_curves(path: Path, plot: Plot, *, style: Path) -> list[Path]:
    """Write PATH.pdf and PATH.svg of a plot's curves, on its scale; returns them."""
    lines = plot.strands

    def draw(axes: Any) -> None:
        for one in lines:
            color = f"C{one.color}"
            if one.lows:
                axes.fill_between(one.xs, one.lows, one.highs, color=color, alpha=0.18, lw=0)
            if one.ys:
                axes.plot(one.xs, one.ys, color=color, label=one.label)
        axes.set_xlabel(plot.x_label)
        axes.set_ylabel(textwrap.fill(plot.title, _LABEL))
        if plot.y.kind == "log":
            _logarithmic(axes)
        names = {one.label for one in lines if one.ys}
        if 1 < len(names) <= _MOST_IN_LEGEND:
            handles, labels = axes.get_legend_handles_labels()
            of = dict(zip(labels, handles, strict=True))
            axes.legend(of.values(), _short([*of]))

    return _write(path, style, draw)


def write_intervals(path: Path, rows: Sequence[Comparison], *, style: Path, x_label: str) -> list[Path]:
    """Write PATH.pdf and PATH.svg of differences, one below the other, with their intervals; returns them.

    Of none nothing is written, nor of more than MOST_ROWS, for which a page has no room: the table has them.
    """
    if not 0 < len(rows) <= MOST_ROWS:
        return []

    def draw(axes: Any) -> None:
        axes.axvline(0, color="0.2", lw=0.8)
        for y, one in enumerate(rows):
            scale, interval = one.metric.scale, one.interval
            if interval is not None:
                ends = [interval.low * scale, interval.high * scale]
                axes.plot(ends, [y, y], color="C0", solid_capstyle="butt")
            value = (one.difference or 0.0) * scale
            axes.plot([value], [y], "o", color="C0", mfc="white" if interval is None else "C0")
        axes.set_yticks(range(len(rows)), names)
        if each < 0.12:
            axes.tick_params(axis="y", labelsize=0.85 * 72 * each)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(x_label)

    names = _short([one.variant for one in rows])
    lines = sum(name.count("\n") + 1 for name in names)
    height = min(0.55 + 0.2 * max(len(rows), 0.7 * lines), _PAGE)
    each = (height - 0.55) / lines
    return _write(path, style, draw, height=height)


def _short(names: Sequence[str]) -> Sequence[str]:
    """Return names in two short lines, which leave the column room; alike ones with their begin and end."""
    short = [folded(name, _LABEL) for name in names]
    if len({*short}) == len({*names}):
        return short
    half = _LABEL // 2
    return [name if len(name) <= _LABEL else f"{name[:half]}…{name[-half:]}" for name in names]


def _logarithmic(axes: Any) -> None:
    """Set a logarithmic axis with its ticks as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _write(path: Path, style: Path, draw: Any, height: float | None = None) -> list[Path]:
    import matplotlib
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        # A name in letters that no font of the style has is a box in the picture, and no text in a terminal.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()  # only the style file decides
        matplotlib.rcParams.update(_read(style))
        matplotlib.rcParams.update({"svg.hashsalt": path.name, "text.parse_math": False})
        figure = Figure()
        if height is not None:
            figure.set_figheight(height)
        draw(figure.add_subplot())
        written = [path.with_name(f"{path.name}.{ending}") for ending in ("pdf", "svg")]
        # A date would make other bytes of the same numbers.
        pdf: Any = FigureCanvasPdf(figure)
        pdf.print_pdf(written[0], metadata={"CreationDate": None, "Creator": None})
        svg: Any = FigureCanvasSVG(figure)
        svg.print_svg(written[1], metadata={"Date": None, "Creator": None})
    return written


def _read(style: Path) -> Any:
    from matplotlib import rc_params_from_file

    try:
        return rc_params_from_file(style, fail_on_error=True, use_default_template=False)
    except Exception as error:
        raise ReportError(
            f"{style.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint=f"fix it, or remove {style}: the next call writes the first one again",
        ) from error
