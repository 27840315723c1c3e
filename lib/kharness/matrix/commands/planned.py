"""The directory of a matrix of commands, there as a whole or not at all, and the launcher of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from kharness.config.values import Value
from kharness.matrix.commands.axes import GROUPS, grid_of
from kharness.matrix.commands.given import Given, prepare_run, preview_run
from kharness.matrix.launchers import LAUNCHERS, schedules
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.begin import publish_new
from kharness.matrix.planning.cells import run_order
from kharness.matrix.planning.matrix_json import Kind, Plan, write_plan
from kharness.matrix.planning.needs import refuse_unrunnable
from kharness.matrix.planning.plan import PREFIX, quarantine_entries
from kharness.matrix.planning.quarantine import idle, quarantined
from kharness.matrix.planning.seeds_planned import seeds_planned
from kharness.matrix.planning.single import on_cluster
from kharness.runs.command import TAKES_NO_GPUS, CommandLaunch, command_launch
from kharness.runs.errors import MatrixError
from kharness.runs.rundir import stamp, sync_filesystem


def prepare_matrix(
    given: Given,
    axes: Sequence[Axis],
    settings: Mapping[str, Value],
    *,
    check: Callable[[Plan], None],
    write: bool = True,
) -> Plan:
    """Make the directory of a matrix: RESULTS/test_matrix_TIME, with one run per cell, and its plan.

    Without `write` only the plan.
    """
    given.check(axes)
    if not axes:
        raise MatrixError("there is no axis", hint="give -a name=value,value; kharness run runs it once")
    make = partial(plan_of, given, axes, settings)
    return write_new(given, "matrix", make, check, write=write)


def write_new(
    given: Given,
    kind: Kind,
    planned: Callable[[Path], Plan],
    check: Callable[[Plan], None],
    *,
    write: bool = True,
) -> Plan:
    """Write the planned runs into a new directory of their own; nothing is written if a check fails."""
    wanted = f"{PREFIX[kind]}{stamp()}"
    if not write:
        plan = planned(given.results / wanted)
        check(plan)
        return plan

    def fill(plan: Plan, into: Path) -> None:
        into.mkdir()
        for cell, launch in zip(plan.cells, plan.launches, strict=True):
            assert isinstance(launch, CommandLaunch)
            given.write_run(launch.of, into / launch.name, cell.values)
        sync_filesystem(into)
        write_plan(plan, given.cwd, into=into)

    return publish_new(given.results, wanted, planned, check, fill)


def plan_of(given: Given, axes: Sequence[Axis], settings: Mapping[str, Value], directory: Path) -> Plan:
    """Return the plan of a matrix in a directory; nothing is written."""
    include, exclude = (
        [text for text in str(settings.get(f"MATRIX_{name}", "")).split(GROUPS) if text]
        for name in ("INCLUDE", "EXCLUDE")
    )
    grid = grid_of(axes, given.program, include=include, exclude=exclude)
    cells = grid.cells
    launches = []
    for cell in cells:
        run = directory / cell.name
        command = given.command(cell.name, run, cell.values)
        launches.append(command_launch(run, command, root=given.cwd))
    seeds = seeds_planned(cells, settings, directory.parent, command=given.computing())
    entries = quarantine_entries(given.cwd, str(settings.get("MATRIX_QUARANTINE", "")), "--quarantine")
    names = [cell.name for cell in cells]
    return Plan(
        directory=directory,
        axes=grid.axes,
        excluded=grid.excluded,
        cells=cells,
        launches=launches,
        settings=settings,
        order=run_order(cells, settings),
        quarantine=quarantined(entries, names),
        notes=[*seeds.notes, *idle(entries, names)],
        template=given.content(),
        seeds=seeds.content(),
        created=time.time(),
    )


def launcher_settings(name: str, pairs: Sequence[str], *, detach: bool) -> dict[str, Value]:
    """Return the settings of a launcher; MatrixError for an unknown one, and for an option that it lacks.

    One run at a time on this machine, and as many as it allows in a scheduler's queue.
    """
    kinds = {field.name: str(field.type) for field in fields(LAUNCHERS.load(name).Options)}
    found: dict[str, Value] = {"LAUNCHER": name, "LAUNCHER_LOCAL_FORK_SERVER": True, "MATRIX_DETACH": detach}
    found["MATRIX_JOBS"] = 0 if schedules(found) else 1
    found |= TAKES_NO_GPUS
    for pair in pairs:
        option, equals, value = pair.partition("=")
        if not equals or option not in kinds:
            raise MatrixError(
                f"--launcher-option {pair}: {name} has no option {option}"
                if equals
                else f"--launcher-option {pair} is not NAME=VALUE",
                hint=f"its options: {', '.join(kinds)}",
            )
        found[LAUNCHERS.symbol(name, option)] = _typed(pair, value, kinds[option])
    if detach and not schedules(found):
        raise MatrixError(
            "--detach: what runs on this machine ends with this command", hint="give --launcher slurm"
        )
    return found


def launcher_words(settings: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the options that gave the settings of a launcher; {} of this machine's own."""
    if not schedules(settings):
        return {}
    name = str(settings["LAUNCHER"])
    ours = launcher_settings(name, (), detach=False)
    given = []
    for field in fields(LAUNCHERS.load(name).Options):
        symbol = LAUNCHERS.symbol(name, field.name)
        if symbol in settings and settings[symbol] != ours.get(symbol):
            value = settings[symbol]
            given.append(f"{field.name}={('y' if value else 'n') if isinstance(value, bool) else value}")
    return {"--launcher": [name], "--launcher-option": given}


def prepare_job(given: Given) -> CommandLaunch:
    """Make the directory of a single run of a launcher's; MatrixError before anything is written."""
    (wished,) = preview_run(given)
    refuse_unrunnable([on_cluster(wished, given.settings)], given.settings)
    launch = prepare_run(given)
    return replace(launch, threads=on_cluster(launch, given.settings).threads)


def _typed(pair: str, value: str, kind: str) -> Value:
    if kind == "bool" and value in ("y", "n"):
        return value == "y"
    if kind == "int" and value.isascii() and value.isdecimal():
        return int(value)
    if kind in ("bool", "int"):
        raise MatrixError(
            f"--launcher-option {pair} is no {'number' if kind == 'int' else 'y or n'}", hint="give one"
        )
    return value
