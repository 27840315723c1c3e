"""The text of MATRIX_AXES: `OPTIMIZER=sgd|adamw SEED=1|2 augment=@a.config|@b.config`.

Axes are separated by blanks, values by `|`. A value with blanks or bars is written in single quotes. An axis
whose values begin with `@` is a fragment axis: its name is free, and its values are files of assignments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kharness.runs.errors import MatrixError

# Values of an axis that a headline lists.
MOST_SHOWN = 8

EXAMPLE = "for example MATRIX_AXES='OPTIMIZER=sgd|adamw SEED=1|2'"

# What people vary most, under the names they say, in any case; each stands for a symbol.
NAMED_AXES = {
    **dict.fromkeys(("model", "models"), "MODEL"),
    **dict.fromkeys(("optimizer", "optimizers"), "OPTIMIZER"),
    "pruning": "PRUNING",
    **dict.fromkeys(("sparsity", "sparsities"), "PRUNING_SPARSITY"),
    **dict.fromkeys(("seed", "seeds"), "SEED"),
    **dict.fromkeys(("tracker", "trackers"), "TRACKER"),
}

_WORD = re.compile(r"(?:[^\s']|'[^']*')+")
_SYMBOL = re.compile(r"[A-Za-z0-9_]+", re.ASCII)


@dataclass(frozen=True)
class Axis:
    """One symbol and the values it takes, or one name and the fragments it stands for."""

    symbol: str
    """Without CONFIG_; also an alias such as OPTIMIZER, or TRACKER."""
    values: Sequence[str]
    """Values; for a fragment axis, the file names without folder and last suffix."""
    files: Sequence[str] = ()
    """For a fragment axis, the path of each value as given; else empty."""
    included: bool = False
    """Whether MATRIX_INCLUDE alone names it."""
    given: Sequence[str] = ()
    """Values without those that only further groups have brought; empty where there are no such groups."""

    def __str__(self) -> str:
        texts = [f"@{_quoted(path)}" for path in self.files] or [_quoted(value) for value in self.values]
        return f"{self.symbol}={'|'.join(texts)}"

    @property
    def shown(self) -> str:
        """The axis as written, where that is short enough for a line; else its first and its last value."""
        if len(self.values) <= MOST_SHOWN:
            return str(self)
        ends = replace(self, values=[self.values[0], "…", self.values[-1]], files=())
        return f"{ends} ({len(self.values)} values)"


def parse_axes(text: str, *, source: str = "MATRIX_AXES") -> list[Axis]:
    """Return the axes in their order; MatrixError for unreadable text, or a symbol or value given twice."""
    axes = [_axis(word, source) for word in split_words(text, source)]
    if not axes:
        raise MatrixError(f"{source} is empty", hint=EXAMPLE)
    symbols = [axis.symbol for axis in axes]
    for symbol in symbols:
        if symbols.count(symbol) > 1:
            raise MatrixError(f"{source}: {symbol} is an axis twice", hint="list all its values once")
    return axes


def split_groups(text: str, source: str) -> list[str]:
    """The texts between semicolons; none for an empty text. MatrixError for a group without words."""
    _refuse_open_quote(text, source)
    if not text.strip():
        return []
    groups = [group.strip() for group in _split(text, ";")]
    if groups[-1] == "":
        groups.pop()  # a semicolon after the last one
    if not all(groups):
        raise MatrixError(f"{source}: nothing stands between two semicolons", hint="leave one of them out")
    return groups


def split_words(text: str, source: str) -> list[str]:
    """Split at blanks, keeping quotes; raise MatrixError for a quote that is not closed."""
    _refuse_open_quote(text, source)
    return _WORD.findall(text)


def split_values(text: str) -> list[str]:
    """Split at bars, keeping quotes."""
    return _split(text, "|")


def _split(text: str, separator: str) -> list[str]:
    # Each part ends with a separator, the last one with its own: an empty part is one then, too.
    found: list[str] = re.findall(rf"((?:[^{separator}']|'[^']*')*){re.escape(separator)}", text + separator)
    return found


def unquoted(value: str) -> str:
    return value.replace("'", "")


def axis_symbol(name: str) -> str:
    """The symbol that a name in an axis, a rule or a filter means: `optimizer` is OPTIMIZER."""
    name = name.removeprefix("CONFIG_")
    return NAMED_AXES.get(name.lower(), name)


def is_symbol(name: str) -> bool:
    """Whether a name could be one of a symbol."""
    return _SYMBOL.fullmatch(name) is not None


def refuse_repeated(axis: Axis, source: str) -> None:
    """MatrixError for an axis that has a value twice."""
    seen = set()
    for value in axis.values:
        if value in seen:
            hint = "list it once"
            if axis.files:
                hint = "rename one of the files: a value is called as its file, without folder and suffix"
            within = f"{source}: " if source else ""
            raise MatrixError(f"{within}{axis.symbol} has the value {value} twice", hint=hint)
        seen.add(value)


def _axis(word: str, source: str) -> Axis:
    name, equals, rest = word.partition("=")
    symbol = axis_symbol(name)
    if not equals or not is_symbol(symbol):
        raise MatrixError(f"{source}: {word} is not SYMBOL=value|value", hint=EXAMPLE)
    values = split_values(rest)
    if not all(values):
        raise MatrixError(
            f"{source}: {word} has an empty value",
            hint="write '' where you mean an empty value",
        )
    of_fragments = [value.startswith("@") for value in values]
    axis = Axis(symbol, [unquoted(value) for value in values])
    if any(of_fragments):
        if not all(of_fragments):
            raise MatrixError(
                f"{source}: {word} mixes fragments and plain values",
                hint="begin every value with @, or put those that are no files in single quotes",
            )
        files = [unquoted(value[1:]) for value in values]
        axis = Axis(symbol, [_stem(path, word, source) for path in files], files)
    refuse_repeated(axis, source)
    return axis


def _stem(path: str, word: str, source: str) -> str:
    stem = Path(path).stem
    if not stem:
        raise MatrixError(
            f"{source}: {word} names no file", hint="write @ and a path: augment=@strong.config"
        )
    return stem


def _refuse_open_quote(text: str, source: str) -> None:
    if text.count("'") % 2:
        raise MatrixError(
            f"{source}: a quote is not closed",
            hint="a value with blanks or bars needs single quotes: X='a b'|c",
        )


def _quoted(value: str) -> str:
    return value if value and not re.search(r"[\s|;]|^@", value) else f"'{value}'"
