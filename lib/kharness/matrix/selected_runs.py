"""Find the runs selected by RUN= and FILTER=: those of a matrix, one cell of it, or a single training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kharness.config.config_py import ConfigValues
from kharness.config.make.typed import typed, typed_setting
from kharness.config.output import say
from kharness.config.places import CONFIG_PY
from kharness.matrix.launchers import settings_of_one
from kharness.matrix.planning.asked_cells import asked_cell
from kharness.matrix.planning.filter import Filter, choose, parse_filter
from kharness.runs.command import COMMAND_JSON, TAKES_NO_GPUS, command_launch, read_command
from kharness.runs.errors import MatrixError
from kharness.runs.files import MATRIX_JSON, OUTPUT_LOG, STATUS_JSON
from kharness.runs.latest import shown
from kharness.runs.launch import Launch
from kharness.runs.matrix_plan import (
    known_failures,
    read_matrix_json,
    sources_of,
    trials_to_choose,
)
from kharness.runs.rundir import has_plan
from kharness.runs.status import COMPLETE, read_status
from monitoring.journal.files import RUN_JSON
from monitoring.outside import MODEL_GIT


@dataclass(frozen=True)
class Member:
    """One run with the axis values that a filter goes by."""

    name: str
    values: Mapping[str, str]
    launch: Launch


@dataclass(frozen=True)
class SelectedRuns:
    """The runs in a directory."""

    directory: Path
    """Directory of the matrix, or of the run if it belongs to none."""
    members: Sequence[Member]
    chosen: Filter
    is_matrix: bool
    kind: str
    """`matrix`, `sweep` or `run`."""
    settings: Mapping[str, object]
    quarantine: Mapping[str, str]
    order: Sequence[str] = ()
    """The names of a matrix's cells as they are to run; empty for the order of the members."""
    code: Mapping[str, Any] = field(default_factory=dict)
    """The sources that it was planned with, by matrix.json."""
    to_choose: int = 0
    """Trials that a search has still to choose."""
    is_startable: bool = True
    """Whether it can be started from here; a run that a program of its own opened cannot."""

    @property
    def meant(self) -> list[Member]:
        """Those that the filter means."""
        return [member for member in self.members if self.chosen.matches(member.name, member.values)]

    @property
    def launches(self) -> list[Launch]:
        """Launches of the runs that the filter selects."""
        return [member.launch for member in self.meant]


def find(directory: Path, root: Path, chosen: str = "", *, only_look: bool = False) -> SelectedRuns:
    """The matrix or run in `directory`; a cell of a matrix is that matrix with a filter for the cell.

    A caller that will `only_look` gets runs that cannot be started from here, too. MatrixError for a
    directory that holds none, or whose planning was cut short, and for a filter that means no cell.
    """
    place = locate(directory)
    if place.is_matrix:
        return _matrix(place.directory, root, parse_filter(f"{chosen} {place.cell}"))
    return _single(directory, root, only_look=only_look)


def complete_run(directory: Path, root: Path) -> Path:
    """The run in `directory`; of a matrix or a sweep the first complete one, which is printed.

    MatrixError for a matrix without one, and for what `find` refuses.
    """
    if not has_plan(directory):
        return directory
    found = find(directory, root)
    for member in found.members:
        if read_status(member.launch.directory).status == COMPLETE:
            say(f"of {shown(directory)} the first complete run, {member.name}")
            return member.launch.directory
    raise MatrixError(
        f"{directory} has no complete run", hint=f"finish it: {typed('continue', shown(directory))}"
    )


def asked_member(found: SelectedRuns, name: str) -> Member:
    """The run that CELL= names, or the only one there is; MatrixError names the nearest."""
    members = {member.name: member for member in found.members}
    return members[asked_cell(name, list(members), [member.name for member in found.meant])]


def _matrix(directory: Path, root: Path, chosen: Filter) -> SelectedRuns:
    plan = read_matrix_json(directory)
    sources = sources_of(directory)
    members = [_member(cell, directory, root, sources) for cell in plan["cells"]]
    choose(chosen, members)
    known = known_failures(plan)
    return SelectedRuns(
        directory,
        members,
        chosen,
        True,
        plan["kind"],
        plan["settings"],
        known,
        plan["order"],
        {name: plan[name] for name in ("git", MODEL_GIT, "template") if name in plan},
        trials_to_choose(plan),
    )


def _member(cell: Mapping[str, Any], directory: Path, root: Path, sources: Path | None) -> Member:
    run = directory / cell["name"]
    threads = cell.get("threads") or 0
    launch = Launch(
        cell["name"], run, root, cell["model"], ConfigValues(run), threads=threads, sources=sources
    )
    if os.path.exists(os.path.join(run, COMMAND_JSON)) and (command := read_command(run)) is not None:
        launch = replace(command_launch(run, command), threads=threads)
    return Member(launch.name, cell["values"], launch)


def _single(directory: Path, root: Path, *, only_look: bool) -> SelectedRuns:
    if (command := read_command(directory)) is not None:
        return _run(command_launch(directory, command), {**TAKES_NO_GPUS, **command.settings})
    config = directory / CONFIG_PY
    if not config.is_file() and only_look:
        return replace(_run(Launch(directory.name, directory, root, "", {})), is_startable=False)
    if not config.is_file():
        raise MatrixError(
            f"{directory} was recorded by a program itself: nothing in it says how that is started",
            hint="start the program again, and it goes on; status, report, compare and sync take this run",
        )
    values = ConfigValues(directory)
    launch = Launch(directory.name, directory, root, str(values["MODEL"]), values)
    return _run(launch, settings_of_one(values))


def _run(launch: Launch, settings: Mapping[str, object] = {}) -> SelectedRuns:
    members = [Member(launch.name, {}, launch)]
    return SelectedRuns(launch.directory, members, Filter(), False, "run", settings, {})


@dataclass(frozen=True)
class Place:
    """The matrix or run of a directory, and which cell it is."""

    directory: Path
    """Directory of the matrix, or of the run if it belongs to none."""
    is_matrix: bool
    cell: str = ""
    """The cell of the matrix that the directory is; empty for the matrix itself."""


def locate(directory: Path) -> Place:
    """The matrix or run that a directory is or belongs to.

    A run next to the cells, such as the reproduction of one, is a run of its own. MatrixError for a directory
    that holds none, or whose planning was cut short.
    """
    parent = directory.parent
    if has_plan(directory):
        return Place(directory, is_matrix=True)
    holds_run = any((directory / name).is_file() for name in (STATUS_JSON, OUTPUT_LOG, RUN_JSON))
    # A folder that a plan names is its cell, also before it has begun.
    if has_plan(parent) and (
        not holds_run or any(cell["name"] == directory.name for cell in read_matrix_json(parent)["cells"])
    ):
        return Place(parent, is_matrix=True, cell=directory.name)
    if holds_run:
        return Place(directory, is_matrix=False)
    if any(directory.glob(f"*/{STATUS_JSON}")):
        raise MatrixError(
            f"{directory} holds cells without a plan: it was interrupted while it was being planned",
            hint="nothing of it has run; plan it again: make test_matrix",
        )
    raise MatrixError(
        f"{directory} holds neither a matrix ({MATRIX_JSON}) nor a run ({STATUS_JSON})",
        hint=typed_setting(
            "name one: RUN=results/latest, or RUN=results/latest/CELL",
            "name one: results/latest, or results/latest/CELL",
        ),
    )
