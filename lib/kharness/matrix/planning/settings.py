"""The settings of a matrix that exists already, with what the command line changes for this call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.errors import ConfigError
from kharness.config.make.variables import layer, sets_symbol
from kharness.config.tree import Tree
from kharness.matrix.planning.axis_values import NO_AXIS, given_axes


def with_command_line(
    settings: Mapping[str, object], variables: Mapping[str, str], root: Path
) -> dict[str, object]:
    """Return the settings with JOBS=4 and the like applied; ConfigError for options that change cells."""
    # Whoever continues watches on, unless this call says otherwise.
    changed = {name: False if name == "MATRIX_DETACH" else value for name, value in settings.items()}
    asked_of_it = {name: value for name, value in variables.items() if name != "CONFIG_RESULTS_DIR"}
    if not any(map(sets_symbol, asked_of_it)):
        return changed
    tree = Tree.load(root)
    for axis in given_axes(tree, asked_of_it)[0].axes.values():
        raise ConfigError(
            f"{axis} cannot change a matrix that has begun",
            hint=f"FILTER='{axis}' chooses among its cells; make test_matrix '{axis}' begins another matrix",
        )
    asked = layer(tree, asked_of_it)
    for assignment in asked:
        # How cells run and are judged may change from call to call, not what they train or are named.
        of_matrix = tree.affects.touches(assignment.symbol, "matrix") and assignment.symbol not in NO_AXIS
        if not (of_matrix and tree.affects.touches(assignment.symbol, "machine", "reporting")):
            raise ConfigError(
                f"{assignment.origin.where} cannot change a matrix that has begun",
                hint="its cells keep the configuration that they were planned with; leave it out",
            )
    values = tree.resolve(_launcher_of(tree, settings, asked), asked).values
    changed.update({assignment.symbol: values[assignment.symbol] for assignment in asked})
    if any(assignment.symbol in tree.aliases["LAUNCHER"].values() for assignment in asked):
        changed["LAUNCHER"] = values["LAUNCHER"]
        if not any(assignment.symbol == "MATRIX_JOBS" for assignment in asked):
            changed["MATRIX_JOBS"] = _jobs(settings, values)
        # Those of another launcher are out of reach while the matrix is planned: it has no values of them.
        changed = {**{name: values[name] for name in values if name.startswith("LAUNCHER_")}, **changed}
    return changed


def _launcher_of(tree: Tree, settings: Mapping[str, object], asked: Layer) -> Layer:
    """The launcher that the matrix has, whose options may change without its name beside them."""
    symbol, origin = (
        tree.aliases["LAUNCHER"].get(str(settings.get("LAUNCHER", ""))),
        Origin("default", "the matrix"),
    )
    if not symbol:
        return []
    found = [Assignment(symbol, "y", origin)]
    other = {one.symbol for one in asked} & (set(tree.aliases["LAUNCHER"].values()) - {symbol})
    if not other and (cells := settings.get("MATRIX_CELLS_PER_JOB")) is not None:
        found.append(Assignment("MATRIX_CELLS_PER_JOB", str(cells), origin))  # what some of them depend on
    return found


def _jobs(settings: Mapping[str, object], values: Mapping[str, object]) -> object:
    """JOBS with another launcher: what was chosen for the matrix, else the default of that launcher."""
    before = settings.get("MATRIX_JOBS", 1)
    was_default = before == (0 if settings.get("LAUNCHER") == "slurm" else 1)
    return values["MATRIX_JOBS"] if was_default else before
