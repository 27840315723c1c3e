"""Axes of a matrix of commands: `-a lr=1e-3,3e-4 -a seed=1..5`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kharness.config.output import printable
from kharness.matrix.planning.axes import Axis, refuse_repeated
from kharness.matrix.planning.axis_values import LONGEST_RANGE, NUMBER
from kharness.matrix.planning.cells import Cell, cell_name, products, varying, without
from kharness.matrix.planning.filter import Condition, Filter
from kharness.runs.errors import MatrixError

EXAMPLE = "for example -a lr=1e-3,3e-4 -a seed=1..5"

# Between the groups of MATRIX_INCLUDE and MATRIX_EXCLUDE in the settings of a matrix.
GROUPS = "; "

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_RANGE = re.compile(r"(\d+)\.\.(\d+)", re.ASCII)
# What a sweep draws from.
BETWEEN = re.compile(rf"(log:)?({NUMBER})\.\.({NUMBER})", re.ASCII)


def parse_axis(text: str, option: str = "-a") -> Axis:
    """Return the axis of one `-a`; its symbol is the name in capitals. MatrixError for what is none."""
    symbol, rest = split_axis(text, option)
    values = []
    for value in rest.split(","):
        if not value:
            raise MatrixError(f"{option} {printable(text)} has an empty value", hint=EXAMPLE)
        values += _written_out(value, f"{option} {text}")
    axis = Axis(symbol, values)
    refuse_repeated(axis, option)
    return axis


def split_axis(text: str, option: str = "-a") -> tuple[str, str]:
    """Return symbol and values of one `-a`; MatrixError where it has no name."""
    name, equals, rest = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise MatrixError(f"{option} {printable(text)} is not NAME=value,value", hint=EXAMPLE)
    return name.upper(), rest


@dataclass(frozen=True)
class CommandGrid:
    """The runs of a matrix, by name and values."""

    axes: Sequence[Axis]
    """With the values that only a further group brings in."""
    cells: Sequence[Cell]
    excluded: Sequence[str] = ()
    """Names of combinations that were left out."""


def grid_of(
    axes: Sequence[Axis], model: str, *, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> CommandGrid:
    """Return every combination, the last axis varying fastest, without those of `exclude`, then `include`.

    A group of either is a text such as `lr=1e-2 seed=1..5`; an axis that it does not name has all its values.
    MatrixError for too many, and for a group that means nothing.
    """
    further = []
    for text in include:
        said = {one.symbol: one.accepted for one in _conditions(axes, text, "--include")}
        further.append([replace(axis, values=said.get(axis.symbol, axis.values)) for axis in axes])
    rules = [Filter(text, _conditions(axes, text)) for text in exclude]
    whole = list(axes)
    for place, axis in enumerate(axes if further else ()):
        values = [*axis.values, *(value for one in further for value in one[place].values)]
        whole[place] = replace(axis, values=list(dict.fromkeys(values)), given=list(axis.values))
    named = varying(whole)
    cells, excluded = without(_combinations(axes, named, model), rules, source="--exclude")
    names = {cell.name for cell in cells}
    for group in further:
        # A run that the grid or an earlier group has too is one run.
        added = [cell for cell in _combinations(group, named, model) if cell.name not in names]
        cells += added
        names |= {cell.name for cell in added}
    if not cells:
        raise MatrixError("--exclude leaves out every run", hint="remove one, or a word of it")
    return CommandGrid(whole, cells, [name for name in excluded if name not in names])


def cells_of(axes: Sequence[Axis], model: str) -> list[Cell]:
    """Return every combination, the last axis varying fastest. MatrixError for too many."""
    return _combinations(axes, varying(axes), model)


def _combinations(axes: Sequence[Axis], named: Sequence[str], model: str) -> list[Cell]:
    return [Cell(cell_name(values, named), values, model) for values in products(axes)]


def _conditions(axes: Sequence[Axis], text: str, option: str = "--exclude") -> list[Condition]:
    """Return what a group says of the axes; MatrixError for what is no group of theirs."""
    known = [axis.symbol for axis in axes]
    found = [parse_axis(word, option) for word in text.split()]
    for axis in found:
        if axis.symbol not in known:
            raise MatrixError(
                f"{option} {text}: {axis.symbol.lower()} is not an axis",
                hint=f"the axes are {', '.join(known).lower()}",
            )
    if not found:
        raise MatrixError(f"{option} is empty", hint=f"for example {option} 'lr=1e-2 seed=1..5'")
    return [Condition(axis.symbol, axis.values) for axis in found]


def _written_out(value: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(value)
    if not match:
        if BETWEEN.fullmatch(value):  # a program would get it as it stands
            raise MatrixError(
                f"{text}: {value} is a range to search in, not values",
                hint="list the values that a matrix has, or search: kharness sweep",
            )
        return [value]
    first, last = int(match[1]), int(match[2])
    if not 0 <= last - first < LONGEST_RANGE:
        raise MatrixError(f"{text}: {value} has no values, or too many", hint=EXAMPLE)
    return [str(number) for number in range(first, last + 1)]
