"""How the roles of a picture's text look: themes for dark and light terminals, no colors, and all eyes.

No theme paints a background, so a terminal keeps its own. What is red also ends in `!`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from monitoring.terminal.display.cells import Line, cell_len, set_cell_size

# Role -> parameters of the terminal's SGR (ECMA-48 8.3.117; 38;5;N of xterm's 256 colors).
DARK = {
    "heading": "1;36",
    "strong": "1",
    "dim": "2",
    "keys": "7",
    "label": "1;7;33",
    "selected": "7",
    "warn": "33",
    "bad": "1;31",
    "good": "1;32",
    "warn_graph": "33",
    "bad_graph": "31",
    "util": "32",
    "memory": "94",
    "heat": "35",
    "power": "36",
    "loss": "32",
    "speed": "94",
}

LIGHT = {
    **DARK,
    "heading": "1;34",
    "dim": "38;5;240",
    "warn": "38;5;130",
    "warn_graph": "38;5;130",
    "good": "1;38;5;28",
    "util": "38;5;28",
    "loss": "38;5;28",
    "memory": "34",
    "speed": "34",
    "power": "38;5;30",
}

MONO = {
    **dict.fromkeys(DARK, ""),
    **{role: DARK[role] for role in ("strong", "keys", "selected", "dim")},
    "heading": "1;4",
    "label": "1;7",
    "warn": "4",
    "bad": "1;7",
    "bad_graph": "1",
    "good": "1",
}

# The palette of Okabe and Ito (https://jfly.uni-koeln.de/color/), by the nearest of the 256 colors.
SAFE = {
    **DARK,
    "heading": "1;38;5;74",
    "label": "1;7;38;5;178",
    "warn": "38;5;178",
    "warn_graph": "38;5;178",
    "bad": "1;38;5;166",
    "bad_graph": "38;5;166",
    "good": "1;38;5;36",
    "util": "38;5;36",
    "loss": "38;5;36",
    "memory": "38;5;74",
    "speed": "38;5;74",
    "heat": "38;5;175",
    "power": "38;5;178",
}

THEMES: dict[str, dict[str, str]] = {"dark": DARK, "light": LIGHT, "mono": MONO, "safe": SAFE}

# Instead of one of 256 colors where a terminal has eight.
FEW = {
    "38;5;28": "32",
    "38;5;30": "36",
    "38;5;36": "36",
    "38;5;74": "34",
    "38;5;130": "33",
    "38;5;166": "33",
    "38;5;175": "35",
    "38;5;178": "33",
    "38;5;240": "2",
}


def default_theme(environment: Mapping[str, str]) -> str:
    """`mono` where colors are not wanted (no-color.org) or not there; `light` on a light terminal."""
    kind = environment.get("TERM", "")
    if environment.get("NO_COLOR") or re.match(r"vt\d", kind) or kind.endswith("-mono"):
        return "mono"
    background = environment.get("COLORFGBG", "").rpartition(";")[2]  # rxvt, Konsole and others set it
    return "light" if background in ("7", "15") else "dark"


def has_many_colors(environment: Mapping[str, str]) -> bool:
    """Whether the terminal has 256 colors, by what it says of itself."""
    kind = environment.get("TERM", "")
    return bool(environment.get("COLORTERM")) or "256" in kind or "direct" in kind


def painted(line: Line, width: int, theme: str, *, many_colors: bool) -> str:
    """Return the line for a terminal, cut to `width` cells; it ends in the terminal's own style."""
    parts, left = [], width
    for span in line:
        text, wide = span.text, cell_len(span.text)
        if wide > left:
            text = set_cell_size(text, left)
        code = _code(theme, span.style, many_colors)
        parts.append(f"\x1b[{code}m{text}\x1b[0m" if code else text)
        left -= wide
        if left <= 0:
            break
    return "".join(parts)


@lru_cache(maxsize=256)
def _code(theme: str, style: str, many_colors: bool) -> str:
    """Return the parameters of one role, or together those of several."""
    codes = [THEMES[theme][role] for role in style.split()]
    if not many_colors:
        codes = [re.sub(r"38;5;\d+", lambda match: FEW[match[0]], code) for code in codes]
    return ";".join(filter(None, codes))
