"""A sweep of a command: a grid or a search over ranges, planned without an option tree."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from kharness.config.affects import Affects
from kharness.config.values import Value, whole
from kharness.matrix.commands.axes import BETWEEN, cells_of, parse_axis, split_axis
from kharness.matrix.commands.given import Given
from kharness.matrix.commands.planned import write_new
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.axis_values import NUMBER
from kharness.matrix.planning.cells import Cell
from kharness.matrix.planning.matrix_json import Plan
from kharness.matrix.planning.plan import quarantine_entries
from kharness.matrix.planning.quarantine import idle, quarantined
from kharness.matrix.sweep.ranges import Between, Listed, Range, between, whole_grid
from kharness.matrix.sweep.search import draw, load_optuna, refuse_seed
from kharness.matrix.sweep.sweep import names_of
from kharness.matrix.sweep.validation import read_objective
from kharness.runs.command import CommandLaunch, command_launch
from kharness.runs.errors import MatrixError

EXAMPLE = "for example -a lr=log:1e-5..1e-2 -a width=64..512 -a optimizer=sgd,adamw"

# One end of it is a number, so that the other was to be one, too.
_HALF = re.compile(rf"({NUMBER})\.\.[^,]*|[^,]*\.\.({NUMBER})", re.ASCII)
_WHOLE = re.compile(r"[-+]?[0-9]+", re.ASCII)


def parse_range(text: str) -> Range:
    """Return the range of one `-a` of a sweep; MatrixError for what is none.

    `low..high` is anything between: an integer where both ends are, evenly by order of magnitude after
    `log:`. Everything else is a list of values, as in a matrix.
    """
    symbol, values = split_axis(text)
    match = BETWEEN.fullmatch(values)
    if match is None:
        if values.startswith("log:") or _HALF.fullmatch(values):
            raise MatrixError(f"-a {text}: a range is low..high, of two numbers", hint=EXAMPLE)
        return Listed(symbol, values, parse_axis(text).values, in_order=False)
    whole = all(_WHOLE.fullmatch(end) for end in match.groups()[1:])
    try:
        low, high = Decimal(match[2]), Decimal(match[3])
        return between(symbol, values, low, high, log=bool(match[1]), whole=whole)
    except ValueError as error:
        raise MatrixError(f"-a {text} {error}", hint=EXAMPLE) from None


class CommandSpace:
    """Runs of a command with placeholders."""

    def __init__(self, given: Given, ranges: Sequence[Range]) -> None:
        self._given = given
        self.ranges = ranges
        self.affects = Affects()

    @classmethod
    def of(cls, plan: Plan) -> CommandSpace:
        """Return the space of a plan that was read."""
        ranges = [parse_range(f"{symbol.lower()}={text}") for symbol, text in plan.ranges.items()]
        return cls(Given.of(plan.template, plan.directory.parent), ranges)

    def cell(self, name: str, values: Mapping[str, str]) -> Cell:
        return Cell(name, values, self._given.program)

    def begin(self, cell: Cell, plan: Plan) -> CommandLaunch:
        launch = self.launch(cell, plan.directory)
        self._given.write_run(launch.of, launch.directory, cell.values)
        return launch

    def launch(self, cell: Cell, directory: Path) -> CommandLaunch:
        run = directory / cell.name
        return command_launch(run, self._given.command(cell.name, run, cell.values), root=self._given.cwd)


def searched(ranges: Iterable[Range]) -> bool:
    """Whether there is a range that has no grid."""
    return any(isinstance(one, Between) and (one.log or not one.whole) for one in ranges)


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
    known = quarantine_entries(given.cwd, str(settings.get("MATRIX_QUARANTINE", "")), "--quarantine")
    space = CommandSpace(given, ranges)

    def planned(directory: Path) -> Plan:
        plan = Plan(
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
        names = names_of(plan)
        return replace(plan, quarantine=quarantined(known, names), notes=idle(known, names))

    def checked(plan: Plan) -> None:
        # A TPE search has no trial yet, so one is drawn and dropped.
        drawn = plan.launches or [space.launch(draw(space, 1, seed=0)[0][0], plan.directory)]
        check(replace(plan, launches=drawn))

    return write_new(given, "sweep", planned, checked, write=write)


def _cells(given: Given, ranges: Sequence[Range], settings: Mapping[str, Value]) -> list[Cell]:
    method = settings["SWEEP_METHOD"]
    if method == "grid":
        listed = [whole_grid(one) for one in ranges]
        return cells_of([Axis(one.symbol, one.values) for one in listed], given.program)
    load_optuna()  # which must not be found missing once trials run
    refuse_seed(ranges, AGAIN)
    if method == "tpe":
        return []
    trials, seed = whole(settings, "SWEEP_TRIALS"), whole(settings, "SWEEP_SEED")
    return draw(CommandSpace(given, ranges), trials, seed=seed)[0]
