"""The text of MATRIX_AXES: `OPTIMIZER=sgd|adamw SEED=1|2`, and what a cell made from it is called.

Axes are separated by blanks, values by `|`. A value with blanks or bars stands in single quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from kharness.matrix.errors import MatrixError

EXAMPLE = "for example MATRIX_AXES='OPTIMIZER=sgd|adamw SEED=1|2'"

_WORD = re.compile(r"(?:[^\s']|'[^']*')+")
_VALUE = re.compile(r"(?:[^|']|'[^']*')*")
_SYMBOL = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9.,+-]{1,40}", re.ASCII)


@dataclass(frozen=True)
class Axis:
    """One symbol and the values it takes."""

    symbol: str
    """Without CONFIG_; also an alias such as OPTIMIZER, or TRACKER."""
    values: Sequence[str]

    def __str__(self) -> str:
        return f"{self.symbol}={'|'.join(map(_quoted, self.values))}"


def parse_axes(text: str) -> list[Axis]:
    """The axes in their order; MatrixError for what cannot be read, and for a symbol or value given twice."""
    if text.count("'") % 2:
        raise MatrixError("MATRIX_AXES: a quote is not closed", hint=EXAMPLE)
    axes = [_axis(word) for word in _WORD.findall(text)]
    if not axes:
        raise MatrixError("MATRIX_AXES is empty", hint=EXAMPLE)
    symbols = [axis.symbol for axis in axes]
    for symbol in symbols:
        if symbols.count(symbol) > 1:
            raise MatrixError(f"MATRIX_AXES: {symbol} is an axis twice", hint="list all its values once")
    return axes


def cell_name(values: Mapping[str, str], axes: Sequence[Axis]) -> str:
    """`optimizer-adamw_seed-2`: the axes that vary, in their order; fit to be a folder's name.

    A value that cannot stand in one is cut down and told apart by a hash of the whole.
    """
    varying = [axis.symbol for axis in axes if len(axis.values) > 1] or [axis.symbol for axis in axes]
    return "_".join(f"{symbol.lower().replace('_', '-')}-{_in_name(values[symbol])}" for symbol in varying)


def _axis(word: str) -> Axis:
    symbol, equals, rest = word.partition("=")
    symbol = symbol.removeprefix("CONFIG_")
    if not equals or not _SYMBOL.fullmatch(symbol):
        raise MatrixError(f"MATRIX_AXES: {word} is not SYMBOL=value|value", hint=EXAMPLE)
    values = []
    position = 0
    while position <= len(rest):
        match = _VALUE.match(rest, position)
        assert match is not None
        value = match[0]
        if not value:
            raise MatrixError(
                f"MATRIX_AXES: {word} has an empty value",
                hint="write '' where you mean an empty value",
            )
        values.append(value.replace("'", ""))
        position = match.end() + 1
    for value in values:
        if values.count(value) > 1:
            raise MatrixError(f"MATRIX_AXES: {symbol} has the value {value} twice", hint="list it once")
    return Axis(symbol, values)


def _in_name(value: str) -> str:
    # Blanks only separate the values of a list, which hold no commas, so nothing is lost.
    text = value.replace(" ", ",") if "," not in value else value
    if _PLAIN.fullmatch(text) and not text.startswith("."):
        return text
    kept = re.sub(r"[^A-Za-z0-9.,+-]+", "-", text)[:24].strip(".-")
    return f"{kept}~{sha256(value.encode(errors='surrogatepass')).hexdigest()[:6]}"


def _quoted(value: str) -> str:
    return value if value and not re.search(r"[\s|]", value) else f"'{value}'"
