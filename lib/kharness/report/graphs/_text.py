"""Words of a picture, a line at a time: letter by letter, as matplotlib does, takes four times as long."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
    from matplotlib.font_manager import FontProperties
    from PIL.ImageFont import FreeTypeFont

LETTERS = frozenset(map(chr, [*range(0x20, 0x7F), *range(0xA1, 0x100), ord("…"), ord("−")]))
"""Those that DejaVu Sans surely has; matplotlib looks for the others in other fonts."""


@functools.cache
def canvas_class() -> type[FigureCanvasAgg]:
    """Agg's canvas, which draws level words of LETTERS at once; a class of a package that loads when used."""
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
                theirs.draw_text(gc, x, y, s, prop, angle, ismath, mtext)
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


@functools.cache
def _font(path: str, pixels: float) -> FreeTypeFont:
    """A font of a size; none of LETTERS needs a layout that knows scripts and ligatures."""
    from PIL import ImageFont

    return ImageFont.truetype(path, pixels, layout_engine=ImageFont.Layout.BASIC)
