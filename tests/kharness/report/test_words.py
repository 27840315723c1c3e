"""Words that are drawn a line at a time are where matplotlib draws them, letter by letter."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kharness.report.graphs._canvas import canvas_class


@pytest.mark.parametrize(
    "words", ["adamw, batch_size=32, lr=0.003", "−0.28 ± 0.1   gäq", "λ → 0, µs", "two\nlines", "$\\alpha^2$"]
)
@pytest.mark.parametrize("look", [{}, {"fontweight": "bold"}, {"rotation": 90, "ha": "right", "va": "top"}])
def test_words_have_the_place_that_matplotlib_gives_them(words: str, look: dict[str, str]) -> None:
    edges = []
    for canvas in (FigureCanvasAgg, canvas_class()):
        figure = Figure(figsize=(4, 4), dpi=150)
        canvas(figure)
        figure.text(0.4, 0.6, words, fontsize=9.5, **look)  # type: ignore[arg-type]
        figure.canvas.draw()
        ink = np.argwhere(np.asarray(figure.canvas.buffer_rgba())[..., 0] < 200)  # type: ignore[attr-defined]
        edges.append([*ink.min(axis=0), *ink.max(axis=0)])
    np.testing.assert_allclose(edges[1], edges[0], atol=3)


def test_control_characters_are_drawn_as_they_are_written_out(recwarn: pytest.WarningsRecorder) -> None:
    drawn = []
    for words in ("a\x1b[31m\tb", r"a\x1b[31m\tb"):
        figure = Figure(figsize=(2, 1))
        canvas_class()(figure)
        figure.text(0.4, 0.6, words, rotation=90, parse_math=False)
        figure.canvas.draw()
        drawn.append(np.asarray(figure.canvas.buffer_rgba()).tobytes())  # type: ignore[attr-defined]
    assert (drawn[0] == drawn[1], recwarn.list) == (True, [])
