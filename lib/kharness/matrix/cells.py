"""Cells: every combination of the axes' values, each resolved by Kconfig before the first one starts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin, Resolved
from kharness.config.errors import ConfigError
from kharness.config.tree import Tree
from kharness.matrix.axes import Axis, cell_name
from kharness.matrix.errors import MatrixError

# What a cell cannot decide: these shape the matrix around it.
NO_AXIS = {
    "MATRIX_AXES": "it says what the axes are",
    "RESULTS_DIR": "it says where the matrix lies",
    "TRACKER_RUN_NAME": "a matrix names its runs after their cells",
}
# So do all symbols that begin like this.
NO_AXIS_PREFIXES = ("LAUNCHER", "MATRIX_", "MAX_GPU_", "REPORT_", "SWEEP_")


@dataclass(frozen=True)
class Cell:
    """One run of the matrix."""

    name: str
    values: Mapping[str, str]
    """Axis symbol to value, as the axis spells it."""
    resolved: Resolved

    @property
    def model(self) -> str:
        return str(self.resolved.values["MODEL"])


def expand(tree: Tree, base: Layer, command_line: Layer, axes: Sequence[Axis], *, matrix: str) -> list[Cell]:
    """All cells, the last axis varying fastest; `matrix` ends the runs' names in the trackers.

    MatrixError lists every value and every cell that the tree refuses, each with its reason.
    """
    _refuse(_bad_values(tree, axes), "values of MATRIX_AXES are refused", "")
    cells: list[Cell] = []
    refused: list[str] = []
    hint = ""
    for combination in itertools.product(*(axis.values for axis in axes)):
        values = {axis.symbol: value for axis, value in zip(axes, combination, strict=True)}
        name = cell_name(values, axes)
        try:
            layer = _cell_layer(tree, axes, values)
            _refuse_command_line(tree, command_line, layer)
            resolved = tree.resolve(base, command_line, layer, _run_name(f"{name}_{matrix}"))
            _find_model(tree.root, resolved)
            cells.append(Cell(name, values, resolved))
        except ConfigError as error:
            refused.append(f"{name}: {error}")
            hint = hint or error.hint
    _refuse(refused, f"of {len(cells) + len(refused)} cells are refused", hint)
    _refuse_twins(cells)
    return cells


def set_aside(tree: Tree, cells: Sequence[Cell]) -> list[tuple[Assignment, int]]:
    """What was asked for all cells and does not apply in some, with the number of those."""
    count: dict[Assignment, int] = {}
    for cell in cells:
        for assignment in cell.resolved.set_aside:
            if not tree.kconf.syms[assignment.symbol].choice:
                count[assignment] = count.get(assignment, 0) + 1
    return list(count.items())


def _bad_values(tree: Tree, axes: Sequence[Axis]) -> list[str]:
    bad = []
    for axis in axes:
        if axis.symbol in NO_AXIS or axis.symbol.startswith(NO_AXIS_PREFIXES):
            reason = NO_AXIS.get(axis.symbol, "it is the same for all cells of a matrix")
            bad.append(f"{axis.symbol} cannot be an axis: {reason}")
            continue
        for value in axis.values:
            try:
                tree.assignments(axis.symbol, value, Origin("matrix axis", f"{axis.symbol}={value}"))
            except ConfigError as error:
                bad.append(str(error) + (f" ({error.hint})" if error.hint else ""))
    return bad


def _cell_layer(tree: Tree, axes: Sequence[Axis], values: Mapping[str, str]) -> Layer:
    return [
        assignment
        for axis in axes
        for assignment in tree.assignments(axis.symbol, values[axis.symbol], Origin("matrix axis", str(axis)))
    ]


def _run_name(name: str) -> Layer:
    return [Assignment("TRACKER_RUN_NAME", name, Origin("matrix axis", "the name of the cell"))]


def _refuse_command_line(tree: Tree, command_line: Layer, layer: Layer) -> None:
    """A value given for this call that an axis would silently replace."""
    for new, old in tree.overridden([command_line], layer):
        raise ConfigError(
            f"{old.origin.where} contradicts the axis {new.origin.where}",
            hint="leave one of them out",
        )
    for assignment in command_line:
        if assignment.symbol == "TRACKER_RUN_NAME":
            reason = NO_AXIS[assignment.symbol]
            raise ConfigError(f"{assignment.origin.where} has no effect: {reason}", hint="leave it out")


def _find_model(root: Path, resolved: Resolved) -> None:
    model = resolved.values["MODEL"]
    if not (root / f"{model}/train.py").is_file():
        raise ConfigError(f"MODEL={model}: there is no {model}/train.py")


def _refuse(lines: Sequence[str], what: str, hint: str) -> None:
    """One error that lists all; a reason that is the same for every line stands once."""
    if lines:
        raise MatrixError("\n  ".join([f"{len(lines)} {what}", *lines]), hint=hint or "mend MATRIX_AXES")


def _refuse_twins(cells: Sequence[Cell]) -> None:
    """Two cells with the same values would only look like a comparison."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        ours = {name: value for name, value in cell.resolved.values.items() if name != "TRACKER_RUN_NAME"}
        twin = seen.setdefault(repr(sorted(ours.items())), cell)
        if twin is not cell:
            raise MatrixError(
                f"cells {twin.name} and {cell.name} have the same configuration",
                hint="give the axis values that differ, or leave one of them out",
            )
