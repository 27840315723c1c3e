"""How text looks by theme and terminal."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import pytest

from monitoring.terminal.display.cells import NARROW, Span, cell_len, outside
from monitoring.terminal.display.themes import DARK, FEW, THEMES, default_theme, has_many_colors, painted


@pytest.mark.parametrize(
    ("environment", "theme"),
    [
        ({"TERM": "xterm-256color"}, "dark"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "mono"),
        ({"TERM": "xterm", "NO_COLOR": ""}, "dark"),  # as no-color.org has it
        ({"TERM": "vt220"}, "mono"),
        ({"TERM": "xterm", "COLORFGBG": "0;15"}, "light"),
        ({"TERM": "xterm", "COLORFGBG": "15;default;0"}, "dark"),
    ],
)
def test_default_theme_is_that_of_the_terminal(environment: dict[str, str], theme: str) -> None:
    assert default_theme(environment) == theme


def test_every_theme_has_every_role_and_colors_for_poor_terminals() -> None:
    assert {name: set(theme) for name, theme in THEMES.items()} == {name: set(DARK) for name in THEMES}
    codes = " ".join(code for theme in THEMES.values() for code in theme.values())
    used = set(re.findall(r"38;5;\d+", codes))
    assert used == set(FEW)
    assert (has_many_colors({"TERM": "tmux-256color"}), has_many_colors({"TERM": "linux"})) == (True, False)


def test_mono_has_no_color() -> None:
    line = [Span("x", role) for role in DARK]
    assert re.findall(r"\x1b\[[\d;]*[34]\d[\d;]*m", painted(line, 80, "mono", many_colors=True)) == []


def test_line_is_cut_in_cells_and_ends_in_the_terminals_own_style() -> None:
    line = [Span("ab", "bad"), Span("漢字", "util"), Span("rest")]
    assert painted(line, 5, "dark", many_colors=True) == "\x1b[1;31mab\x1b[0m\x1b[32m漢 \x1b[0m"
    assert painted(line, 80, "light", many_colors=False) == "\x1b[1;31mab\x1b[0m\x1b[32m漢字\x1b[0mrest"


def test_text_of_others_takes_the_cells_it_is_given() -> None:
    given = ["plain", "e\u0301", "漢字", "a\x1b[2J", ""]
    shown = [outside(text, 3).text for text in given]
    assert shown == ["pla", "e\u0301  ", "漢 ", "a?[", "   "]
    assert {cell_len(text) for text in shown} == {3}


def test_signs_that_count_as_narrow_take_a_cell_each() -> None:
    """The Unicode database calls them narrow, or ambiguous: narrow outside of East Asian terminals."""
    narrow = [sign for sign in map(chr, range(0x3000)) if NARROW.fullmatch(sign)]
    wide = [sign for sign in narrow if unicodedata.east_asian_width(sign) in "WF"]
    assert wide + [sign for sign in narrow if unicodedata.category(sign) in ("Mn", "Me", "Cf", "Cc")] == []


def test_color_blind_safe_theme_marks_what_is_wrong_by_lightness_too() -> None:
    """Relative luminance (WCAG 2.2) of warn, bad and a usual graph differ by more than a shade."""

    def luminance(code: str) -> float:
        number = int(code.rpartition(";")[2]) - 16
        levels = [0, 95, 135, 175, 215, 255]
        parts = [levels[number // step % 6] / 255 for step in (36, 6, 1)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    safe = THEMES["safe"]
    shades = sorted(luminance(safe[role]) for role in ("warn", "bad", "heat"))
    assert all(higher - lower > 0.02 for lower, higher in pairwise(shades))
