"""Which cells are meant: `OPTIMIZER=adamw|sgd SEED=1..3`, or a pattern on their names.

Every word must hold. `SYMBOL=value|value` holds for a cell with one of the values, a word without `=` for
a cell whose name is like it. `*`, `?` and `[…]` stand for what they do in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from kharness.matrix.planning.axes import axis_symbol, is_symbol, split_values, split_words, unquoted
from kharness.runs.errors import MatrixError
from monitoring.counts import counted

EXAMPLE = "for example FILTER='OPTIMIZER=adamw SEED=1', or FILTER='*seed-1*' for names"

_RANGE = re.compile(r"(-?[0-9]+)\.\.(-?[0-9]+)", re.ASCII)


class Named(Protocol):
    """Anything that can be chosen by its name and values."""

    @property
    def name(self) -> str: ...

    @property
    def values(self) -> Mapping[str, str]: ...


Cell = TypeVar("Cell", bound=Named)


@dataclass(frozen=True)
class Condition:
    """One symbol and the values that will do."""

    symbol: str
    accepted: Sequence[str]

    def holds(self, values: Mapping[str, str]) -> bool:
        value = values.get(self.symbol)
        return value is not None and any(_alike(pattern, value) for pattern in self.accepted)


@dataclass(frozen=True)
class Filter:
    """All of its parts must hold; without any, every cell is meant."""

    text: str = ""
    conditions: Sequence[Condition] = ()
    names: Sequence[Sequence[str]] = ()
    """Patterns, of which one of each group must fit the name."""

    def matches(self, name: str, values: Mapping[str, str]) -> bool:
        return all(condition.holds(values) for condition in self.conditions) and all(
            any(fnmatchcase(name, pattern) for pattern in patterns) for patterns in self.names
        )


def parse_filter(text: str, *, source: str = "FILTER") -> Filter:
    """Return the filter in a text, an empty one for an empty text; MatrixError if it cannot be parsed."""
    conditions: list[Condition] = []
    names: list[Sequence[str]] = []
    for word in split_words(text, source):
        symbol, equals, rest = word.partition("=")
        accepted = [unquoted(value) for value in split_values(rest if equals else word)]
        if not equals:
            names.append(accepted)
            continue
        symbol = axis_symbol(symbol)
        if not is_symbol(symbol) or not rest:
            raise MatrixError(f"{source}: {word} is not SYMBOL=value|value", hint=EXAMPLE)
        conditions.append(Condition(symbol, accepted))
    return Filter(" ".join(text.split()), conditions, names)


def choose(chosen: Filter, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that are meant; MatrixError if it matches none."""
    found = [cell for cell in cells if chosen.matches(cell.name, cell.values)]
    if chosen.text and not found:
        raise MatrixError(
            f"FILTER={chosen.text} matches none of {counted(len(cells), 'cell')}", hint=_hint(cells)
        )
    return found


def _hint(cells: Sequence[Named]) -> str:
    if not cells:
        return EXAMPLE
    symbols = list(dict.fromkeys(symbol for cell in cells for symbol in cell.values))
    return f"the axes are {', '.join(symbols)}; a cell is called {cells[0].name}"


def _alike(pattern: str, value: str) -> bool:
    """Whether a value is meant: the same text or number, one of a range, or like a pattern."""
    if pattern == value or fnmatchcase(value, pattern):
        return True
    try:
        number = float(value)
        if match := _RANGE.fullmatch(pattern):
            return int(match[1]) <= number <= int(match[2])
        return float(pattern) == number
    except ValueError:
        return False
