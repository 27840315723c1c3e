"""Panels that are lines of a figure are where axes of their own would be, and say the same."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from kharness.report.graphs._panels import Panels

STEPS, VALUES = [0.0, 2.5, 10.0], [0.5, 3.0, 50.0]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_panels_are_where_axes_would_be_and_say_the_same(scale: str) -> None:
    figure = Figure(figsize=(9, 5))
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(2, 3, i + 1) for i in range(5)]
    for axes in panels:
        axes.set_yscale(scale)
        if scale == "log":
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlim(0, 10)
        axes.set_ylim(0.4, 60)
    figure.canvas.draw()
    points, to_figure = np.column_stack([STEPS, VALUES]), figure.transFigure.inverted()
    places = [to_figure.transform(axes.transData.transform(points)) for axes in panels]
    words = [
        [text.get_text() for text, at in zip(labels, ticks, strict=True) if low <= at <= high]
        for labels, ticks, (low, high) in (
            (panels[0].get_xticklabels(), panels[0].get_xticks(), (0, 10)),
            (panels[0].get_yticklabels(), panels[0].get_yticks(), (0.4, 60)),
        )
    ]
    for axes in panels[1:]:
        axes.remove()
    drawn = Panels(figure, panels[0], 5)
    np.testing.assert_allclose([drawn.place(i, STEPS, VALUES) for i in range(5)], places)
    drawn.frames(list("abcde"), "steps", "loss")
    left, below = ["loss", *words[1]], ["steps", *words[0]]
    assert sorted(text.get_text() for text in figure.texts) == sorted([*"abcde", *2 * left, *3 * below])
    assert figure.axes == []
