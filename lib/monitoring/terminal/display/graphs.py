"""Graphs of a few lines: columns of eighth blocks, a heading, and an axis.

Every terminal font has these blocks, and drawing one takes microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from monitoring.terminal.display.cells import Line, Span, fit
from monitoring.terminal.display.numbers import mean

BLOCKS = " ▁▂▃▄▅▆▇█"

# A graph whose largest value is so many times the middle one has a log axis, unless a person has chosen.
LOG_RATIO = 10.0


def graph_rows(values: Sequence[float | None], width: int, height: int, low: float, high: float) -> list[str]:
    """Columns of eighth blocks, the newest value on the right; None leaves a gap, the least is one eighth."""
    shown = binned(values, width)
    eighths = [
        0
        if value is None
        else 1 + round((min(max(value, low), high) - low) / (high - low) * (8 * height - 1))
        for value in shown
    ]
    rows = []
    for row in range(height - 1, -1, -1):
        # count of eighths -> sign: a lookup, because this is most of what a picture costs
        signs = BLOCKS[0] * (8 * row) + BLOCKS + BLOCKS[8] * (8 * (height - row - 1))
        rows.append("".join([signs[count] for count in eighths]).rjust(width))
    return rows


def binned(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return at most `width` values: means of equally many neighbors, which stay together as more come."""
    each = math.ceil(len(values) / width)
    if each <= 1:
        return list(values)
    bins = [values[first : first + each] for first in range(0, len(values), each)]
    return [mean(bin_) for bin_ in bins][-width:]


def is_log_better(values: Sequence[float | None]) -> bool:
    """Whether all are above 0, and most of them would lie at the bottom of a graph."""
    known = sorted(value for value in values if value is not None)
    return bool(known) and known[0] > 0 and known[-1] > LOG_RATIO * known[len(known) // 2]


def logarithms(values: Sequence[float | None]) -> list[float | None]:
    """Return logarithms of values above 0; others leave a gap."""
    return [None if value is None or value <= 0 else math.log10(value) for value in values]


def graph(
    heading: str,
    values: Sequence[float | None],
    width: int,
    rows: int,
    low: float,
    high: float,
    style: str,
    target: str = "",
) -> list[Line]:
    """Return a heading and so many rows, with a cell free on either side."""
    lines: list[Line] = [[Span(" " + fit(heading, -width) + " ", "heading", target)]]
    drawn = graph_rows(values, width, rows, low, high) if rows else []
    return lines + [[Span(f" {row} ", style, target)] for row in drawn]


def axis(left: str, middle: str, right: str, width: int, target: str = "") -> Line:
    """Return the line under a graph that names its left end, middle and right end, with free cells beside."""
    half = width // 2
    text = left.ljust(width - len(right)) + right
    if len(left) + 2 < half - len(middle) // 2 and half + len(middle) // 2 + 2 < width - len(right):
        place = half - len(middle) // 2
        text = text[:place] + middle + text[place + len(middle) :]
    return [Span(" " + fit(text, -width) + " ", "dim", target)]


def beside(boxes: Sequence[list[Line]]) -> list[Line]:
    """Equally high boxes side by side."""
    return [[span for part in parts for span in part] for parts in zip(*boxes, strict=True)]
