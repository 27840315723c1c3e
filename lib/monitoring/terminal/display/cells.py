"""Styled text in the cells of a terminal, with the places where a click means something."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple


class Span(NamedTuple):
    """Text in one style."""

    text: str
    style: str = ""
    """A role of the themes, such as `heading`."""
    target: str = ""
    """The meaning of a click on it: `gpu:3`, `process:3:1234`, `sort:sm`, `run`, `graph`."""


Line = list[Span]

# Signs of one cell each, most of a picture: Latin letters, dashes, arrows, and what graphs are drawn with.
NARROW = re.compile("[ -~\xa1-\xac\xae-\u02ff\u2010-\u2027\u2190-\u21ff\u2500-\u25c0]*")


def cell_len(text: str) -> int:
    """Return how many cells a printable text takes."""
    return len(text) if NARROW.fullmatch(text) else sum(map(_width, text))


def outside(text: str, width: int, style: str = "", target: str = "") -> Span:
    """Text that others wrote: nothing in it controls the terminal, and it takes exactly `width` cells."""
    harmless = "".join(sign if sign.isprintable() else "?" for sign in text)
    return Span(set_cell_size(harmless, max(0, width)), style, target)


def set_cell_size(text: str, width: int) -> str:
    """Return the beginning of a printable text in exactly `width` cells."""
    if NARROW.fullmatch(text):
        return text[:width].ljust(width)
    kept, used = [], 0
    for sign in text:
        wide = _width(sign)
        if used + wide > width:
            break
        kept.append(sign)
        used += wide
    return "".join(kept) + " " * (width - used)


def target_at(line: Line, x: int) -> str:
    """Return the target of a click at a cell of the line, empty for none."""
    for span in line:
        x -= cell_len(span.text)
        if x < 0:
            return span.target
    return ""


def line_target(line: Line) -> str:
    """Return the first target among a line's spans, empty for none."""
    return next((span.target for span in line if span.target), "")


def apart(left: Line, right: Line, width: int) -> Line:
    """Left and right end of a line; without the right one where they do not fit."""
    gap = width - sum(cell_len(span.text) for span in [*left, *right])
    return [*left, Span(" " * gap), *right] if gap >= 0 else left


def fit(text: str, width: int) -> str:
    """Align to the right in at least `width` cells, or for a negative one to the left in exactly so many."""
    return text[:-width].ljust(-width) if width < 0 else text.rjust(width)


def middle(name: str, width: int) -> str:
    """Return a name with its middle left out where it is too long: its beginning and its seed are telling."""
    if len(name) <= width:
        return name
    return f"{name[: (width - 1) // 2]}…{name[len(name) - width // 2 :]}"


def _width(sign: str) -> int:
    # as terminals count (Unicode's annex 11): marks and format controls take no cell, wide East Asian signs
    # two
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1
