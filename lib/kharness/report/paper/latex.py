"""Tables in LaTeX's booktabs, with every character shown as it is."""

from __future__ import annotations

import re

from kharness.report.comparison_table import ABSENT, Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "…": r"\ldots{}",
    "−": r"$-$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_NUMBER = re.compile(r"(?<![\w.-])-(?=\d)")


def escaped(text: str) -> str:
    """Return text that LaTeX prints letter for letter; a minus before a number is one."""
    marked = _NUMBER.sub("−", text)
    return "".join(_SPECIAL.get(character, character) for character in marked)


def latex_table(table: Table, *, caption: str, label: str) -> str:
    """Return a `table` environment for \\usepackage{booktabs}: words to the left, numbers to the right."""
    columns = "".join("l" if i < table.text_columns else "r" for i in range(len(table.header)))
    rows = [" & ".join(map(_cell, row)) + r" \\" for row in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(caption)}}}",
            rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(escaped, table.header)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def latex_figure(name: str, *, caption: str) -> str:
    """Return a `figure` environment that shows NAME.pdf."""
    lines = [r"\begin{figure}", r"\centering", rf"\includegraphics{{{name}.pdf}}"]
    lines += [rf"\caption{{{escaped(caption)}}}", rf"\label{{fig:{name}}}", r"\end{figure}", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return "--" if text == ABSENT else escaped(text)
