"""A matrix as it was requested, all of it checked; its plan and directories, written before a cell starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kharness.config.assignment import Layer
from kharness.config.config_py import ConfigValues
from kharness.config.generate import write_config, write_new_config
from kharness.config.places import asked_path, home
from kharness.config.presets import starting_layer
from kharness.config.tree import CONFIG, Tree
from kharness.config.values import Value
from kharness.environment.parts import bring_for
from kharness.matrix.machine.threads import Machine, cells_at_once, planning_machine, threads_of
from kharness.matrix.planning.axes import Axis, parse_axes, split_groups
from kharness.matrix.planning.axis_values import (
    NO_AXES,
    Fragment,
    GivenAxes,
    SettledAxis,
    is_setting,
    settle,
)
from kharness.matrix.planning.begin import publish_new
from kharness.matrix.planning.cells import (
    Around,
    Cell,
    Combination,
    combinations,
    resolve,
    run_order,
    set_aside,
    varying,
    without,
)
from kharness.matrix.planning.filter import Filter, parse_filter
from kharness.matrix.planning.matrix_json import Kind, Plan, read_plan, write_plan
from kharness.matrix.planning.quarantine import Entry, idle, quarantined, read_quarantine
from kharness.matrix.planning.seeds_planned import seeds_planned
from kharness.matrix.planning.sources import copy_sources
from kharness.runs.command import command_launch, read_command
from kharness.runs.errors import MatrixError
from kharness.runs.files import SOURCES, STATUS_JSON
from kharness.runs.latest import lasting_place
from kharness.runs.launch import Launch
from kharness.runs.matrix_plan import sources_of
from kharness.runs.rundir import results_directory, stamp, sync_filesystem
from kharness.runs.status import PENDING, RunStatus, status_text
from monitoring.counts import counted

PREFIX: Mapping[Kind, str] = {"matrix": "test_matrix_", "sweep": "sweep_"}


def read_settings(tree: Tree, base: Layer, *above: Layer) -> dict[str, Value]:
    """The settings of the matrix; those that are out of reach are absent."""
    # Only these of what lies above: its other values may need what an axis brings.
    of_matrix = [[one for one in layer if is_setting(tree.affects, one.symbol)] for layer in above]
    values = tree.resolve(base, *of_matrix).values
    settings = {n: v for n, v in values.items() if is_setting(tree.affects, n) and n != "TRACKER_RUN_NAME"}
    if "REPORT_BASELINE" in settings:
        settings["REPORT_BASELINE"] = lasting_place(str(settings["REPORT_BASELINE"]))
    return settings


def draft(
    tree: Tree,
    base: Layer,
    command_line: Layer,
    directory: Path,
    *,
    chosen: Filter | None = None,
    given: GivenAxes = NO_AXES,
    axes_text: str = "",
) -> Plan:
    """The matrix that a configuration and a command line ask for, checked; without launches, none is written.

    The name of its `directory` ends those of its runs, `given` are axes of the command line; `axes_text`
    replaces both these and MATRIX_AXES. MatrixError or ConfigError for whatever cannot be taken.
    """
    settings = read_settings(tree, base, command_line)
    settle(tree, list(given.axes.values()), source="")  # what is wrong in the names that were typed
    has_axes = any(one.symbol == "MATRIX_AXES" for one in command_line)
    settings["MATRIX_AXES"] = axes_text or given.over(str(settings["MATRIX_AXES"]), is_given=has_axes)
    grid = settle(tree, parse_axes(str(settings["MATRIX_AXES"])))
    found = combinations(grid, varying([axis.axis for axis in grid]))
    rules = split_groups(str(settings["MATRIX_EXCLUDE"]), "MATRIX_EXCLUDE")
    found, excluded = without(found, [parse_filter(rule, source="MATRIX_EXCLUDE") for rule in rules])
    groups = _included(tree, str(settings["MATRIX_INCLUDE"]))
    found += _further(grid, groups)
    if not found:
        raise MatrixError(
            f"MATRIX_EXCLUDE leaves out all {counted(len(excluded), 'cell')}",
            hint="remove a group of it, or a word",
        )
    # MATRIX_INCLUDE may bring back what MATRIX_EXCLUDE has left out
    excluded = [name for name in excluded if name not in {one.name for one in found}]
    axes = [grid, *groups]
    symbols = list(dict.fromkeys(axis.symbol for group in axes for axis in group))
    cells, refused = resolve(
        tree,
        Around(base, command_line=command_line, matrix=directory.name.removeprefix(PREFIX["matrix"])),
        found,
        symbols=symbols,
        chosen=chosen or Filter(),
        skip_refused=bool(settings["MATRIX_SKIP_REFUSED"]),
    )
    entries = quarantine_entries(home(tree.root), str(settings["MATRIX_QUARANTINE"]))
    return Plan(
        directory,
        axes=_all_axes(grid, symbols, cells),
        cells=cells,
        launches=(),
        settings=settings,
        layers={"base": base, "command_line": command_line},
        refused=refused,
        excluded=excluded,
        fragments=_fragments([axis for group in axes for axis in group]),
        quarantine=quarantined(entries, [cell.name for cell in cells]),
        chosen=chosen.text if chosen else "",
        # A cell that FILTER leaves out, or the tree refuses, is one that a line of the quarantine may mean.
        notes=[*tree.notes, *notes(tree, cells), *idle(entries, [one.name for one in found])],
    )


def notes(tree: Tree, cells: Sequence[Cell]) -> list[str]:
    """Return requests for all cells that do not apply to some, as sentences."""
    return [
        f"{assignment} ({assignment.origin.where}) does not apply to {count} of the runs"
        for assignment, count in set_aside(tree, cells)
    ]


def _included(tree: Tree, text: str) -> list[list[SettledAxis]]:
    """Each group of MATRIX_INCLUDE, a small matrix of its own."""
    source = "MATRIX_INCLUDE"
    return [
        settle(tree, parse_axes(group, source=source), source=source) for group in split_groups(text, source)
    ]


def _further(grid: Sequence[SettledAxis], groups: Sequence[Sequence[SettledAxis]]) -> list[Combination]:
    """The cells of the groups, named for all that their group says, the axes of the matrix first."""
    order = [axis.symbol for axis in grid]
    found: list[Combination] = []
    for group in groups:
        said = [axis.symbol for axis in group]
        named = [symbol for symbol in order if symbol in said]
        found += combinations(group, [*named, *(symbol for symbol in said if symbol not in order)])
    return found


def _all_axes(grid: Sequence[SettledAxis], symbols: Sequence[str], cells: Sequence[Cell]) -> list[Axis]:
    """The axes with the values that only further cells have, and those that only these bring in."""
    known = {axis.symbol: axis.axis for axis in grid}
    axes = []
    for symbol in symbols:
        axis = known.get(symbol, Axis(symbol, [], included=True))
        met = dict.fromkeys([*axis.values, *(c.values[symbol] for c in cells if symbol in c.values)])
        axes.append(replace(axis, values=list(met), files=()) if len(met) > len(axis.values) else axis)
    return axes


def _fragments(axes: Sequence[SettledAxis]) -> dict[str, list[Fragment]]:
    found: dict[str, list[Fragment]] = {}
    for axis in axes:
        if axis.fragments:
            known = found.setdefault(axis.symbol, [])
            known += [fragment for fragment in axis.fragments if fragment not in known]
    return found


def quarantine_entries(root: Path, configured: str, option: str = "MATRIX_QUARANTINE") -> list[Entry]:
    """The lines of the quarantine file; none without a file."""
    return read_quarantine(root / asked_path(option, configured), configured) if configured else []


__all__ = ["Kind", "Plan", "load", "prepare", "write"]

Check = Callable[[Plan], None]
"""Raises for a plan that could not be run, or not be judged as requested."""


def prepare(
    tree: Tree,
    output: Path,
    command_line: Layer,
    *,
    chosen: Filter | None = None,
    given: GivenAxes = NO_AXES,
    check: Check = lambda plan: None,
) -> Plan:
    """Check all of the matrix, then write it; MatrixError or ConfigError before anything is written.

    `output` is where `.config` lives; if it has none, the default preset becomes it. Only the `chosen` cells
    are planned; `given` are axes of the command line. `check` raises for a plan that could not be run or
    judged.
    """
    base = starting_layer(tree, output)

    def planned(directory: Path) -> Plan:
        return draft(tree, base, command_line, directory, chosen=chosen, given=given)

    results = results_of(tree, base, command_line, output=output)
    return write_new(tree, output, base, results, "matrix", planned, check)


def results_of(tree: Tree, base: Layer, *above: Layer, output: Path) -> Path:
    """Return the folder of run directories named by a configuration and its overrides."""
    return results_directory(str(read_settings(tree, base, *above)["RESULTS_DIR"]), output)


def write_new(
    tree: Tree,
    output: Path,
    base: Layer,
    results: Path,
    kind: Kind,
    planned: Callable[[Path], Plan],
    check: Check,
) -> Plan:
    """Plan for a directory that is nobody else's, and write all of it; nothing if a check fails."""
    configured = None if (output / CONFIG).exists() else tree.resolve(base)

    def checked(plan: Plan) -> None:
        check(plan)
        # Before the directory exists: an installation that fails must leave no half-planned matrix behind.
        bring_for(launch.asked for launch in plan.launches)

    def fill(plan: Plan, into: Path) -> None:
        write(plan, tree.root, into=into)
        if configured is not None:
            write_config(configured, output, root=tree.root)

    def launched(directory: Path) -> Plan:
        return with_launches(planned(directory), tree.root)

    return publish_new(results, f"{PREFIX[kind]}{stamp()}", launched, checked, fill)


def with_launches(plan: Plan, root: Path, *, machine: Machine | None = None) -> Plan:
    """The plan with launches of its cells and its seeds, for this machine, or for the one that is given."""
    is_matrix = plan.kind == "matrix"
    seeds = seeds_planned(plan.cells, plan.settings, plan.directory.parent) if is_matrix else None
    machine = machine or planning_machine(
        (cell.resolved.values for cell in plan.cells if cell.resolved), settings=plan.settings
    )
    launches = [launch_of(cell, plan.directory, root) for cell in plan.cells]
    if plan.settings.get("MATRIX_SNAPSHOT"):
        launches = [replace(launch, sources=plan.directory / SOURCES) for launch in launches]
    launches = [with_threads(launch, plan.settings, machine) for launch in launches]
    return replace(
        plan,
        launches=launches,
        machine=machine,
        threads={launch.name: launch.threads for launch in launches},
        # A sweep is ranked by quality alone, and a search chooses its next trial by the earlier ones.
        order=run_order(plan.cells, plan.settings) if is_matrix else (),
        notes=[*plan.notes, *(seeds.notes if seeds else ())],
        seeds=seeds.content() if seeds else {},
        created=time.time(),
    )


def launch_of(cell: Cell, directory: Path, root: Path) -> Launch:
    """How a cell of the matrix in `directory` is started."""
    run = directory / cell.name
    if cell.resolved is None and (command := read_command(run)) is not None:
        return command_launch(run, command)
    asked = cell.resolved.values if cell.resolved else ConfigValues(run)
    return Launch(cell.name, run, root, cell.model, asked, sources=sources_of(directory))


def with_threads(launch: Launch, settings: Mapping[str, object], machine: Machine) -> Launch:
    """The launch with the CPU threads that a plan of these settings gives it."""
    at_once = cells_at_once(launch.asked, settings)
    return replace(launch, threads=threads_of(launch.asked, at_once, machine))


def write(plan: Plan, root: Path, *, into: Path) -> None:
    """Write the directories of all cells, then the plan, so that an existing plan is always complete.

    Into a new directory, which will have the plan's name.
    """
    into.mkdir()
    for cell in plan.cells:
        write_cell(cell, into / cell.name, root=root)
    if plan.settings.get("MATRIX_SNAPSHOT"):
        copy_sources(root, into)
    # One flush for the whole tree instead of an fsync per file: a matrix has thousands of them.
    sync_filesystem(into)
    write_plan(plan, root, into=into)


def write_cell(cell: Cell, directory: Path, *, root: Path) -> None:
    """Make the run directory of a cell, its configuration and its status; not flushed to the disk."""
    assert cell.resolved is not None
    write_new_config(cell.resolved, directory, root=root)
    (directory / STATUS_JSON).write_text(status_text(RunStatus(PENDING)))


def load(directory: Path, root: Path) -> Plan:
    """The plan in a directory; MatrixError if it is missing or unreadable.

    `root` is the checkout that its cells run in. Needs no option tree; what a cell asks for is read from its
    own config.py when somebody looks at it.
    """
    plan = read_plan(directory)
    launches = [
        replace(launch_of(cell, directory, root), threads=plan.threads.get(cell.name, 0))
        for cell in plan.cells
    ]
    return replace(plan, launches=launches)
