"""The look that all graphs share: style, colors, titles and notes."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kharness.report.summary import Summary
from monitoring.errors import written_out

if TYPE_CHECKING:
    from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from PIL.ImageFont import FreeTypeFont

# The page's, by day.
_COLORS = dict(
    reversed(re.findall(r"--(\w+): (#\w+);", (Path(__file__).parents[1] / "page/report.css").read_text()))
)
PALETTE = tuple(_COLORS[f"c{number}"] for number in range(6))
INK, SOFT, GRID, GOOD, ALARM = (_COLORS[name] for name in ("ink", "soft", "line", "good", "bad"))
BACKDROP = "#cfcfcf"
# Color is never the only difference.
MARKERS = ("o", "s", "^", "D", "v", "P")

DPI = 150

# Inches around the plots.
HEAD, FOOT, LEFT, RIGHT = 1.0, 0.62, 0.85, 0.25

STYLE: Any = {
    "axes.edgecolor": SOFT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "text.parse_math": False,
    "xtick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw in our STYLE: nobody's matplotlibrc decides how a graph looks."""
    import matplotlib

    with matplotlib.rc_context():
        settings: Any = matplotlib.rcParams  # a dict of what has been checked
        dict.update(settings, _style())
        yield


@functools.cache
def _style() -> dict[str, Any]:
    """Every setting but that of the backend; to check all of them takes as long as to draw a small graph."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        return {name: value for name, value in dict.items(matplotlib.rcParams) if name != "backend"}


def canvas(width: float, height: float, title: str, subtitle: str, notes: Sequence[str]) -> Figure:
    """A figure with its words in place; sizes in inches, the height that of the plots without the words."""
    from matplotlib.figure import Figure

    foot = 0.17 * len(notes)
    full = height + HEAD + FOOT + foot
    figure = Figure(figsize=(width, full), dpi=DPI, facecolor="white")
    canvas_class()(figure)
    left = LEFT / width
    figure.text(left, 1 - 0.16 / full, title, fontsize=14, fontweight="bold", color=INK, va="top")
    figure.text(left, 1 - 0.45 / full, subtitle, fontsize=9, color=SOFT, va="top", linespacing=1.35)
    for i, note in enumerate(reversed(notes)):
        figure.text(left, (0.10 + 0.17 * i) / full, note, fontsize=8, color=ALARM, va="bottom")
    figure.subplots_adjust(
        left=left, right=1 - RIGHT / width, top=1 - HEAD / full, bottom=(FOOT + foot) / full
    )
    return figure


def png(figure: Figure) -> bytes:
    """The picture, the same bytes for the same numbers."""
    from matplotlib.text import Text
    from PIL import Image

    for text in figure.findobj(Text):
        _find_once(text.get_fontproperties())
    drawn: Any = figure.canvas  # that of Agg, whose methods have no types
    drawn.draw()
    size, pixels = drawn.get_width_height(), drawn.buffer_rgba()
    # Nothing shines through, and a fourth channel takes half as long again to compress.
    image = Image.frombytes("RGB", size, pixels, "raw", "RGBX")
    del pixels
    drawn.forget()
    buffer = io.BytesIO()
    # Level 4 takes half as long again for six bytes in a hundred.
    image.save(buffer, format="png", dpi=(DPI, DPI), compress_level=3)
    return buffer.getvalue()


def nothing_to_draw(title: str, subtitle: str, summary: Summary, what: str) -> Figure:
    """A picture that says what is not there."""
    figure = canvas(8.4, 2.0, title, subtitle, notes(summary, []))
    place = figure.subplotpars
    middle = (place.left + place.right) / 2, (place.bottom + place.top) / 2
    figure.text(*middle, what, ha="center", va="center", fontsize=11, color=SOFT)
    return figure


def notes(summary: Summary, without_numbers: Sequence[str]) -> list[str]:
    """Return what a reader must not overlook: incomplete runs, and runs that are not in the graph."""
    lines = []
    if summary.incomplete:
        named = [f"{cell.name} ({cell.run.shown_status})" for cell in summary.incomplete]
        count = f"{len(named)} of {len(summary.cells)}"
        lines.append(_shortened(f"not complete, in no mean ({count}): ", named))
    if without_numbers:
        lines.append(_shortened("no numbers from: ", list(without_numbers)))
    return lines


def folded(label: str, width: int, lines: int = 2) -> str:
    """A label in lines of at most `width` characters, broken after commas; what is too long ends in …"""
    found = [""]
    for part in label.split(", "):
        joined = f"{found[-1]}, {part}" if found[-1] else part
        if len(joined) <= width or not found[-1]:
            found[-1] = joined
        else:
            found[-1] += ","
            found.append(part)
    if len(found) > lines:
        found = [*found[: lines - 1], ", ".join(line.rstrip(",") for line in found[lines - 1 :])]
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in found)


def _shortened(lead: str, names: list[str], limit: int = 120) -> str:
    text = lead
    for i, name in enumerate(names):
        more = f" and {len(names) - i} more"
        if i and len(text) + len(name) + len(more) > limit:
            return text.rstrip(", ") + more
        text += f"{name}, "
    return text.rstrip(", ")


LETTERS = frozenset(map(chr, [*range(0x20, 0x7F), *range(0xA1, 0x100), ord("…"), ord("−")]))
"""Those that DejaVu Sans surely has; matplotlib looks for the others in other fonts."""


@functools.cache
def canvas_class() -> type[FigureCanvasAgg]:
    """Agg's canvas, which draws level words of LETTERS at once; a class of a package that loads when used.

    Letter by letter, as matplotlib does, takes four times as long.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg

    class WordsAtOnce(RendererAgg):
        def draw_text(
            self,
            gc: Any,
            x: float,
            y: float,
            s: str,
            prop: FontProperties,
            angle: float,
            ismath: Any = False,
            mtext: Any = None,
        ) -> None:
            if ismath or angle or not LETTERS.issuperset(s):
                theirs: Any = super()
                theirs.draw_text(gc, x, y, written_out(s), prop, angle, ismath, mtext)
                return
            mask, (left, top) = _font_of(prop, self.dpi).getmask2(s, mode="L", anchor="ls")
            width, height = mask.size
            if width and height:
                letters = np.frombuffer(bytearray(bytes(mask)), dtype=np.uint8).reshape(height, width)
                self._renderer.draw_text_image(letters, round(x) + left, round(y) + top + height, 0, gc)

        def get_text_width_height_descent(
            self, s: str, prop: FontProperties, ismath: Any
        ) -> tuple[float, float, float]:
            if ismath or not LETTERS.issuperset(s):
                theirs: Any = super()
                s = written_out(s)
                measured: tuple[float, float, float] = theirs.get_text_width_height_descent(s, prop, ismath)
                return measured
            left, top, right, bottom = _font_of(prop, self.dpi).getbbox(s, anchor="ls")
            return right - left, bottom - top, max(0, bottom)

    class Canvas(FigureCanvasAgg):
        @functools.cached_property
        def _of_size(self) -> dict[Any, RendererAgg]:
            return {}

        def get_renderer(self) -> RendererAgg:
            key = (*self.get_width_height(physical=True), self.figure.dpi)
            if key not in self._of_size:
                self._of_size.clear()
                self._of_size[key] = WordsAtOnce(*key)  # type: ignore[no-untyped-call]
            return self._of_size[key]

        def forget(self) -> None:
            """Give the pixels back at once: a figure is freed some pictures later."""
            self._of_size.clear()
            del self.renderer

    return Canvas


def _font_of(prop: FontProperties, dpi: float) -> FreeTypeFont:
    from matplotlib.font_manager import findfont

    return _font(findfont(prop), prop.get_size_in_points() * dpi / 72)


def _find_once(prop: FontProperties) -> None:
    """Name the file of a font: matplotlib looks through all that there are for each size of it."""
    if len(prop.get_family()) == 1:  # of several each has letters that the others lack
        look = (prop.get_style(), prop.get_variant(), prop.get_weight(), prop.get_stretch())
        prop.set_file(_file(prop.get_family()[0], *look))


@functools.cache
def _file(family: str, style: Any, variant: Any, weight: Any, stretch: Any) -> str:
    from matplotlib.font_manager import FontProperties, findfont

    look = FontProperties(family=family, style=style, variant=variant, weight=weight, stretch=stretch)
    return str(findfont(look))


@functools.cache
def _font(path: str, pixels: float) -> FreeTypeFont:
    """A font of a size; none of LETTERS needs a layout that knows scripts and ligatures."""
    from PIL import ImageFont

    return ImageFont.truetype(path, pixels, layout_engine=ImageFont.Layout.BASIC)
