"""A sweep: a matrix whose cells are the trials of a grid or of a search over ranges.

A grid, and a random search, are planned in full and run like any matrix. A TPE search plans its next trial
when there is room for one, from the run directories of the earlier ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kharness.config.assignment import Layer, Origin
from kharness.config.errors import ConfigError
from kharness.config.output import say
from kharness.config.places import home
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.config.values import whole
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.axis_values import SettledAxis
from kharness.matrix.planning.cells import (
    Around,
    Cell,
    Combination,
    combinations,
    refuse,
    resolve,
    resolve_one,
    varying,
)
from kharness.matrix.planning.filter import Filter
from kharness.matrix.planning.matrix_json import (
    Plan,
    add_cell,
    add_refused,
    note_exhausted,
    read_plan,
    write_quarantine,
)
from kharness.matrix.planning.plan import (
    PREFIX,
    Check,
    launch_of,
    notes,
    quarantine_entries,
    read_settings,
    results_of,
    with_threads,
    write_cell,
    write_new,
)
from kharness.matrix.planning.quarantine import Entry, idle, quarantined
from kharness.matrix.running.alike import FIRST
from kharness.matrix.running.execute import Outcome
from kharness.matrix.running.protocols import Queue, Source
from kharness.matrix.sweep.ranges import Range, RangeFile, parse_range, read_ranges, whole_grid
from kharness.matrix.sweep.search import (
    Space,
    draw,
    load_optuna,
    refuse_seed,
    take,
    tpe_values,
    trial_name,
    unseen,
)
from kharness.matrix.sweep.validation import Trial, read_objective, read_trial, read_validation
from kharness.runs.files import MATRIX_JSON
from kharness.runs.latest import shown
from kharness.runs.launch import Launch
from kharness.runs.rundir import sync_filesystem
from kharness.runs.status import COMPLETE
from monitoring.counts import counted

RANGE_FILE = "the range file"


def prepare_sweep(
    tree: Tree, output: Path, range_file: Path, command_line: Layer, *, check: Check = lambda plan: None
) -> Plan:
    """Check and write a sweep; MatrixError or ConfigError before anything is written.

    Of a TPE search only what all trials have in common is written. `output` is where `.config` lives; `check`
    raises for a plan that could not be run.
    """
    base = starting_layer(tree, output)
    asked = read_ranges(tree, range_file)
    around = Around(base, asked.fixed, command_line)
    results = results_of(tree, base, asked.fixed, command_line, output=output)
    return write_new(tree, output, base, results, "sweep", partial(draft_sweep, tree, around, asked), check)


def num_trials(plan: Plan) -> int:
    """How many trials a sweep has in all; a TPE search may end before, where its space is exhausted."""
    if plan.settings.get("SWEEP_METHOD") == "tpe":
        return whole(plan.settings, "SWEEP_TRIALS")
    return len(plan.cells)


def names_of(plan: Plan) -> list[str]:
    """Return the names of all runs of a plan, also of trials that a search has yet to choose."""
    known = [cell.name for cell in plan.cells]
    if plan.kind != "sweep":
        return known
    return [*known, *(trial_name(number) for number in range(len(known) + 1, num_trials(plan) + 1))]


def replace_quarantine(directory: Path, file: str, entries: Sequence[Entry]) -> None:
    """Put the `entries` of a file in place of the quarantine of a plan, and say which mean none of its runs.

    The caller holds the lock of the directory.
    """
    names = names_of(read_plan(directory))
    write_quarantine(directory, file, quarantined(entries, names))
    for line in idle(entries, names):
        say(f"note: {line}")


def opening(plan: Plan) -> list[str]:
    """Return lines on what is about to be tried, and what is not."""
    ranges = " ".join(f"{name}={text}" for name, text in plan.ranges.items())
    method = plan.settings["SWEEP_METHOD"]
    head = f"sweep: {method}, {counted(num_trials(plan), 'trial')} ({ranges})"
    return [head, f"  in {shown(plan.directory)}", *plan.note_lines()]


def source_for(
    plan: Plan, space: Callable[[], Space], unfinished: Sequence[Launch], settings: Mapping[str, object]
) -> Source:
    """Return the source of the trials still to run: unfinished cells, and for TPE those of the space that it
    will choose.

    The caller holds the RunnerLock of its directory; the settings are those of this call.
    """
    is_tpe = plan.settings.get("SWEEP_METHOD") == "tpe"
    source = TpeSource(plan, space(), unfinished) if is_tpe else Queue(unfinished)
    most = whole(settings, "MATRIX_ALIKE", FIRST)
    return Judged(source, read_objective(plan.settings).metric, most)


def draft_sweep(tree: Tree, around: Around, asked: RangeFile, directory: Path) -> Plan:
    """The trials of a grid or a random search; of a TPE search none yet, but the tree has taken one.

    None is written, and none has a launch; the name of the `directory` ends those of the runs.
    """
    around = replace(around, matrix=directory.name.removeprefix(PREFIX["sweep"]))
    settings = read_settings(tree, around.base, around.fixed, around.command_line)
    read_objective(settings)
    method = str(settings["SWEEP_METHOD"])
    symbols = [one.symbol for one in asked.ranges]
    if method == "grid":
        skip = bool(settings["MATRIX_SKIP_REFUSED"])
        found = _grid(tree, asked)
        cells, refused = resolve(
            tree, around, found, symbols=symbols, chosen=Filter(), skip_refused=skip, source=RANGE_FILE
        )
    else:
        load_optuna()  # which must not be found missing once cells run
        refuse_seed(asked.ranges, "make test_matrix")
        # A TPE search draws one trial and drops it: ranges that the tree refuses are found before anything is
        # written.
        count = 1 if method == "tpe" else whole(settings, "SWEEP_TRIALS")
        space = TreeSpace(tree, around, asked.ranges)
        cells, refused = draw(space, count, seed=whole(settings, "SWEEP_SEED"))
        if not cells:
            refuse(refused, len(refused), f"fix {RANGE_FILE}")
        if method == "tpe":
            cells, refused = [], []
    entries = quarantine_entries(home(tree.root), str(settings["MATRIX_QUARANTINE"]))
    names = [cell.name for cell in cells]
    return Plan(
        directory,
        axes=[Axis(symbol, list(dict.fromkeys(cell.values[symbol] for cell in cells))) for symbol in symbols],
        cells=cells,
        launches=(),
        kind="sweep",
        settings=settings,
        refused=refused,
        quarantine=quarantined(entries, names),
        ranges={one.symbol: one.text for one in asked.ranges},
        defaults=_defaults(tree, around, symbols),
        layers={"base": around.base, "fixed": around.fixed, "command_line": around.command_line},
        # The trials of a search have no names yet.
        notes=[*notes(tree, cells), *(idle(entries, names) if names else ())],
    )


class TreeSpace:
    """Trainings of this checkout."""

    def __init__(self, tree: Tree, around: Around, ranges: Sequence[Range]) -> None:
        self._tree = tree
        self._around = around
        self.ranges = ranges
        self.affects = tree.affects

    @classmethod
    def of(cls, plan: Plan, root: Path) -> TreeSpace:
        """Return the space of a plan that was read."""
        tree = Tree.load(root)
        ranges = [parse_range(tree, name, text, MATRIX_JSON) for name, text in plan.ranges.items()]
        return cls(
            tree, Around(matrix=plan.directory.name.removeprefix(PREFIX["sweep"]), **plan.layers), ranges
        )

    def cell(self, name: str, values: Mapping[str, str]) -> Cell:
        layer = [a for one in self.ranges for a in _assign(self._tree, one, values[one.symbol])]
        chosen = Combination(name, values, layer)
        return resolve_one(self._tree, self._around, chosen, symbols=list(values))

    def launch(self, cell: Cell, directory: Path) -> Launch:
        return launch_of(cell, directory, self._tree.root)

    def begin(self, cell: Cell, plan: Plan) -> Launch:
        launch = self.launch(cell, plan.directory)
        if plan.machine is not None:
            launch = with_threads(launch, plan.settings, plan.machine)
        write_cell(cell, launch.directory, root=launch.root)
        return launch


class Judged:
    """A source that ends once its first trials were complete, and none had the metric that decides."""

    def __init__(self, source: Source, metric: str, most: int) -> None:
        """After `most` such trials no other is to be started; 0 for always going on."""
        self._source = source
        self._metric = metric
        self._most = most
        self._without = 0
        self._is_over = False

    def next(self) -> Launch | None:
        return None if self._is_over else self._source.next()

    def waiting(self) -> int | None:
        return 0 if self._is_over else self._source.waiting()

    def done(self) -> bool:
        return self._is_over or self._source.done()

    def ended(self, launch: Launch, outcome: Outcome) -> None:
        self._source.ended(launch, outcome)
        if self._most and outcome.status == COMPLETE:
            if read_validation(launch.directory, self._metric):
                # One has it, so the metric's name is right, and no later trial is asked.
                self._most = 0
            self._without += 1
            self._is_over = self._without == self._most


class TpeSource:
    """Chooses a trial when there is room for one, by the results of the earlier ones."""

    def __init__(self, plan: Plan, space: Space, unfinished: Sequence[Launch]) -> None:
        self._plan = plan
        self._space = space
        self._unfinished = deque(unfinished)
        self._objective = read_objective(plan.settings)
        self._cells = {cell.name: cell for cell in plan.cells}
        self._trials = {cell.name: self._read(cell) for cell in plan.cells}
        # A trial that ended for good is known; one that is to be run again is open, whatever it says.
        for launch in unfinished:
            self._trials[launch.name] = self._open(self._cells[launch.name])
        known = [*(cell.values for cell in plan.cells), *(other.values for other in plan.refused)]
        self._seen = {tuple(values[one.symbol] for one in space.ranges) for values in known}
        self._exhausted = plan.exhausted

    def next(self) -> Launch | None:
        if self._unfinished:
            return self._unfinished.popleft()
        return None if self.done() else self._choose()

    def waiting(self) -> int | None:
        left = 0 if self._exhausted else self._most - len(self._trials)
        return len(self._unfinished) + max(0, left)

    def done(self) -> bool:
        return not self._unfinished and (self._exhausted or len(self._trials) >= self._most)

    def ended(self, launch: Launch, outcome: Outcome) -> None:
        self._trials[launch.name] = self._read(self._cells[launch.name])

    @property
    def _most(self) -> int:
        return whole(self._plan.settings, "SWEEP_TRIALS")

    def _choose(self) -> Launch | None:
        """Plan one more trial; None if the space has no more that is not refused."""
        number = len(self._trials) + 1
        seed = whole(self._plan.settings, "SWEEP_SEED")
        known = list(self._trials.values())
        propose = tpe_values(self._space.ranges, known, self._objective, seed=seed, number=number)
        cell, refused = take(self._space, self._name(number), unseen(propose, self._seen))
        if refused:
            add_refused(self._plan.directory, refused)
        if cell is not None:
            return self._begin(cell)
        self._exhausted = True
        note_exhausted(self._plan.directory)
        return None

    def _begin(self, cell: Cell) -> Launch:
        # The directory first, the plan after it: a plan never names a trial without a directory, and a kill
        # in between leaves a directory that `_name` skips.
        launch = self._space.begin(cell, self._plan)
        sync_filesystem(self._plan.directory)
        add_cell(self._plan.directory, cell, launch)
        self._cells[cell.name] = cell
        self._trials[cell.name] = self._open(cell)
        return launch

    def _name(self, number: int) -> str:
        """A runner that died between making a directory and planning it has left the name to nobody."""
        while (self._plan.directory / trial_name(number)).exists():
            number += 1
        return trial_name(number)

    def _read(self, cell: Cell) -> Trial:
        return read_trial(self._plan.directory, cell, self._objective)

    def _open(self, cell: Cell) -> Trial:
        return Trial(cell.name, cell.values, "open", "", ())


def _defaults(tree: Tree, around: Around, symbols: Sequence[str]) -> Mapping[str, str]:
    """Return what the symbols are where no trial gives them a value; empty where the tree refuses that."""
    try:
        return resolve_one(tree, around, Combination("default", {}, []), symbols=symbols).values
    except ConfigError:
        return {}


def _grid(tree: Tree, asked: RangeFile) -> list[Combination]:
    """Every combination of values, named like the cells of a matrix."""
    listed = [whole_grid(one) for one in asked.ranges]
    axes = [
        SettledAxis(
            Axis(one.symbol, one.values),
            {value: _assign(tree, one, value) for value in one.values},
        )
        for one in listed
    ]
    return combinations(axes, varying([axis.axis for axis in axes]))


def _assign(tree: Tree, one: Range, value: str) -> Layer:
    return tree.assignments(one.symbol, value, Origin("range file", f"CONFIG_{one.symbol}={one.text}"))
