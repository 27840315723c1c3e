"""LaTeX that compiles in any class: booktabs tables that fit a column or a page, every character as it is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from kharness.config.writing import ABSENT, Table

MOST_LINES = 42
"""Lines that a page has room for; a longer table goes on in another one."""

COLUMN_WIDTH = 46
"""Characters of small letters in a column of two; a wider table spans both."""

LONG_TEXT = 40
"""Characters from which on words are broken into lines of so many."""

_WORDS = {
    "\\": "textbackslash",
    "~": "textasciitilde",
    "^": "textasciicircum",
    "<": "textless",
    ">": "textgreater",
    "|": "textbar",
    "'": "textquotesingle",
    "`": "textasciigrave",
    "…": "ldots",
    "–": "textendash",
    "—": "textemdash",
    "‘": "textquoteleft",
    "’": "textquoteright",
    "“": "textquotedblleft",
    "”": "textquotedblright",
    "•": "textbullet",
    "°": "textdegree",
    "§": "S",
    "©": "copyright",
    "ß": "ss",
    "æ": "ae",
    "Æ": "AE",
    "ø": "o",
    "Ø": "O",
    "œ": "oe",
    "Œ": "OE",
    "ł": "l",
    "Ł": "L",
    "ı": "i",
}
_SYMBOLS = {
    "±": r"\pm",
    "×": r"\times",
    "÷": r"\div",
    "−": "-",
    "·": r"\cdot",
    "≤": r"\le",
    "≥": r"\ge",
    "≠": r"\ne",
    "≈": r"\approx",
    "∞": r"\infty",
    "→": r"\to",
    "←": r"\gets",
    "µ": r"\mu",
    "²": "^2",
    "³": "^3",
    "ς": r"\varsigma",
    "ο": "o",
}
_JOINT, _BREAK, _TIE = "\u200b", "\u200c", "\u00a0"
"""Marks in text for what keeps two characters apart, lets a line end, and keeps a line together."""
_LATEX = {
    # With {}, for a command swallows the blanks that follow its name.
    **{character: rf"\{word}{{}}" for character, word in _WORDS.items()},
    **{character: f"${symbol}$" for character, symbol in _SYMBOLS.items()},
    **{character: f"\\{character}" for character in "&%$#_{}"},
    _JOINT: "{}",
    _BREAK: r"\allowbreak{}",
    _TIE: "~",
}
# The accents of letters that every encoding of LaTeX's own fonts has.
_ACCENTS = dict(
    zip(
        "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327",
        "`'^~=u.\"rHvc",
        strict=True,
    )
)
_NUMBER = re.compile(r"(?<![\w.-])-(?=\d)")
# Characters that become others side by side: dashes, quotes, ¿ and ¡.
_LIGATURES = re.compile(r"(?<=-)(?=-)|(?<=,)(?=,)")
_UNBROKEN = re.compile(r"[^\W_]{25,}")


def escaped(text: str) -> str:
    """Return text that LaTeX prints letter for letter; a minus before a number is one.

    A character that its fonts do not have is its code point, `[U+4E2D]`.
    """
    marked = re.sub(r"(?<=\d) %", f"{_TIE}%", _NUMBER.sub("−", text))
    return _protected(_LIGATURES.sub(_JOINT, marked))


def breakable(text: str) -> str:
    """Escape a command or path, with places where its line may break."""
    parts = _UNBROKEN.sub(lambda found: _BREAK.join(re.findall(".{1,8}", found[0])), text)
    return _protected(
        re.sub(r"(?<=[/_=,:+])(?=\S)|(?<=\.)(?=[^\W\d])", _BREAK, _LIGATURES.sub(_JOINT, parts))
    )


def latex_table(table: Table, *, caption: str, label: str) -> str:
    """Return `table` environments for booktabs and graphicx: words to the left, numbers to the right.

    One that is wider than a column spans both of two; one that is wider than that is scaled.
    """
    texts = [[*column] for column in zip(table.header, *table.rows, strict=True)]
    longest = [max(map(len, column)) for column in texts]
    folded = [i < table.text_columns and width > LONG_TEXT for i, width in enumerate(longest)]
    width = sum(
        min(one, LONG_TEXT) if is_folded else one for one, is_folded in zip(longest, folded, strict=True)
    )
    environment = "table*" if width + 2 * len(longest) > COLUMN_WIDTH else "table"
    columns = [
        rf"p{{{LONG_TEXT / 2:g}em}}" if is_folded else "l" if i < table.text_columns else "r"
        for i, is_folded in enumerate(folded)
    ]
    parts = list(_pages(table.rows, folded)) or [[]]
    lines = []
    for number, rows in enumerate(parts, 1):
        of = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
        tabular = [rf"\begin{{tabular}}{{{''.join(columns)}}}", r"\toprule", _row(table.header, folded)]
        tabular += [r"\midrule", *(_row(row, folded) for row in rows), r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\begin{{{environment}}}", r"\centering", rf"\caption{{{escaped(caption + of)}}}"]
        lines += [rf"\label{{tab:{label}{f'-{number}' if number > 1 else ''}}}", r"\small"]
        lines += [*_fitting(tabular), rf"\end{{{environment}}}", ""]
    return "\n".join(lines)


def latex_figure(name: str, *, caption: str) -> str:
    """Return a `figure` environment that shows NAME.pdf, scaled where a column is narrower."""
    lines = [r"\begin{figure}", r"\centering", *_fitting([rf"\includegraphics{{{name}.pdf}}"])]
    lines += [rf"\caption{{{escaped(caption)}}}", rf"\label{{fig:{name}}}", r"\end{figure}", ""]
    return "\n".join(lines)


def file_name(name: str) -> str:
    """Return a name fit for files and labels: `val/ppl` is no folder, `%` no comment."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def _pages(rows: Sequence[Sequence[str]], folded: Sequence[bool]) -> Iterator[Sequence[Sequence[str]]]:
    """Yield the rows of a page each: as many as have MOST_LINES lines."""
    begin, filled = 0, 0
    for i, row in enumerate(rows):
        lines = max(
            -(-len(text) // LONG_TEXT) if is_folded else 1
            for text, is_folded in zip(row, folded, strict=True)
        )
        if filled and filled + lines > MOST_LINES:
            yield rows[begin:i]
            begin, filled = i, 0
        filled += lines
    if filled:
        yield rows[begin:]


def _fitting(lines: Sequence[str]) -> list[str]:
    """Return these, scaled down where they are wider than their column."""
    return [
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        # The % keeps the end of its line from being a blank, which would widen the box.
        *lines[:-1],
        f"{lines[-1]}%",
        "}",
    ]


def _row(cells: Sequence[str], folded: Sequence[bool]) -> str:
    # Not \\, which \raggedright in the last cell makes the end of a line within it.
    texts = [_cell(text, is_folded) for text, is_folded in zip(cells, folded, strict=True)]
    return " & ".join(texts) + r" \tabularnewline"


def _cell(text: str, is_folded: bool) -> str:
    if text == ABSENT:
        return "--"
    return rf"\raggedright {breakable(text)}" if is_folded else escaped(text)


def _protected(marked: str) -> str:
    r"""Return its LaTeX, which is no argument of the command before it, as `[a]` is one of \item."""
    text = "".join(map(_character, marked))
    return f"{{}}{text}" if text.startswith(("[", "*")) else text


def _character(character: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    if character.isspace():
        return " "
    return character if character.isascii() and character.isprintable() else _letter(character)


def _letter(character: str) -> str:
    """Return a letter that is not ASCII: with its accent, by its Greek name, else its code point."""
    base, accent = (*unicodedata.normalize("NFD", character), "", "")[:2]
    if base.isascii() and accent in _ACCENTS and len(unicodedata.normalize("NFD", character)) == 2:
        return rf"\{_ACCENTS[accent]}{{{base}}}"
    name = unicodedata.name(character, "").split()
    if name[:3:2] == ["GREEK", "LETTER"] and len(name) == 4 and "α" <= character.lower() <= "ω":
        return _greek(name[3], small=name[1] == "SMALL")
    return f"[U+{ord(character):04X}]"


def _greek(name: str, *, small: bool) -> str:
    """Return a Greek letter; a capital that looks as a Latin one is that one."""
    name = {"LAMDA": "LAMBDA"}.get(name, name)
    if small:
        return rf"$\{name.lower()}$"
    if name in ("GAMMA", "DELTA", "THETA", "LAMBDA", "XI", "PI", "SIGMA", "UPSILON", "PHI", "PSI", "OMEGA"):
        return rf"$\{name.capitalize()}$"
    return rf"$\mathrm{{{ {'ETA': 'H', 'CHI': 'X', 'RHO': 'P'}.get(name, name[0]) }}}$"
