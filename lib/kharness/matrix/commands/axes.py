"""Axes of a matrix of commands: `-a lr=1e-3,3e-4 -a seed=1..5`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from kharness.matrix.planning.axes import Axis, refuse_repeated
from kharness.matrix.planning.axis_values import LONGEST_RANGE
from kharness.matrix.planning.cell_names import cell_name, varying
from kharness.matrix.planning.cells import MOST_CELLS, Cell
from kharness.runs.errors import MatrixError

EXAMPLE = "for example -a lr=1e-3,3e-4 -a seed=1..5"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_RANGE = re.compile(r"(\d+)\.\.(\d+)", re.ASCII)


def parse_axis(text: str) -> Axis:
    """Return the axis of one `-a`; its symbol is the name in capitals. MatrixError for what is none."""
    symbol, rest = split_axis(text)
    values = []
    for value in rest.split(","):
        if not value:
            raise MatrixError(f"-a {text} has an empty value", hint=EXAMPLE)
        values += _written_out(value, text)
    axis = Axis(symbol, values)
    refuse_repeated(axis, "-a")
    return axis


def split_axis(text: str) -> tuple[str, str]:
    """Return symbol and values of one `-a`; MatrixError where it has no name."""
    name, equals, rest = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise MatrixError(f"-a {text} is not NAME=value,value", hint=EXAMPLE)
    return name.upper(), rest


def cells_of(axes: Sequence[Axis], model: str) -> list[Cell]:
    """Return every combination, the last axis varying fastest. MatrixError for too many."""
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_CELLS:
        raise MatrixError(f"the axes have {count} combinations", hint=f"at most {MOST_CELLS} can be planned")
    named = varying(axes)
    symbols = [axis.symbol for axis in axes]
    found = []
    for chosen in itertools.product(*(axis.values for axis in axes)):
        values = dict(zip(symbols, chosen, strict=True))
        found.append(Cell(cell_name(values, named), values, model))
    return found


def _written_out(value: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(value)
    if not match:
        return [value]
    first, last = int(match[1]), int(match[2])
    if not 0 <= last - first < LONGEST_RANGE:
        raise MatrixError(f"-a {text}: {value} has no values, or too many", hint=EXAMPLE)
    return [str(number) for number in range(first, last + 1)]
