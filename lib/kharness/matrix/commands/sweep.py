"""A sweep of a command: a grid or a search over ranges, planned without an option tree."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kharness.config.values import Value
from kharness.matrix.commands.axes import cells_of
from kharness.matrix.commands.given import Given
from kharness.matrix.commands.planned import write_new
from kharness.matrix.commands.space import CommandSpace
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.cells import Cell
from kharness.matrix.planning.matrix_json import Plan
from kharness.matrix.sweep.ranges import Range, whole_grid
from kharness.matrix.sweep.search import load_optuna
from kharness.matrix.sweep.space import draw, refuse_seed
from kharness.matrix.sweep.validation import read_objective
from kharness.runs.errors import MatrixError

AGAIN = "kharness matrix -a seed=101..105 … -- COMMAND"


def prepare_sweep(
    given: Given,
    ranges: Sequence[Range],
    settings: Mapping[str, Value],
    *,
    check: Callable[[Plan], None],
    write: bool = True,
) -> Plan:
    """Make the directory of a sweep, RESULTS/sweep_TIME, and its trials as far as they are known beforehand.

    MatrixError before anything is written. Without `write` only the plan.
    """
    given.check(ranges)
    if not ranges:
        raise MatrixError("there is no range", hint="give -a name=log:low..high, low..high or value,value")
    read_objective(settings)
    cells = _cells(given, ranges, settings)
    space = CommandSpace(given, ranges)

    def planned(directory: Path) -> Plan:
        return Plan(
            directory=directory,
            axes=[
                Axis(one.symbol, list(dict.fromkeys(cell.values[one.symbol] for cell in cells)))
                for one in ranges
            ],
            cells=cells,
            launches=[space.launch(cell, directory) for cell in cells],
            kind="sweep",
            settings=settings,
            ranges={one.symbol: one.text for one in ranges},
            template=given.content(),
            created=time.time(),
        )

    return write_new(given, "sweep", planned, check, write=write)


def _cells(given: Given, ranges: Sequence[Range], settings: Mapping[str, Value]) -> list[Cell]:
    method, trials, seed = (settings[f"SWEEP_{name}"] for name in ("METHOD", "TRIALS", "SEED"))
    if method == "grid":
        listed = [whole_grid(one) for one in ranges]
        return cells_of([Axis(one.symbol, one.values) for one in listed], given.program)
    load_optuna()  # which must not be found missing once trials run
    refuse_seed(ranges, AGAIN)
    if method == "tpe":
        return []
    assert isinstance(trials, int)
    assert isinstance(seed, int)
    return draw(CommandSpace(given, ranges), trials, seed=seed)[0]
