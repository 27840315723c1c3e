"""A past run of anybody's program, run again: its command in the code that it had, every value compared.

What a program reads beside its code is not known to us: that is said, and its values tell.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kharness.config.assignment import tracker_list
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.matrix.commands.given import own_values, write_command_run
from kharness.matrix.planning.begin import Planning
from kharness.matrix.planning.single import withdraw_refused
from kharness.matrix.planning.template import Template
from kharness.matrix.reproduce.revision import Code, GitState, code_of
from kharness.matrix.reproduce.verdict import has_ended_alike, say_not_compared, say_verdict
from kharness.matrix.selected_runs import complete_run
from kharness.matrix.supervise_single import supervise_single
from kharness.runs.command import Command, command_launch, read_command
from kharness.runs.errors import MatrixError
from kharness.runs.files import RENDERED
from kharness.runs.latest import asked_directory, shown
from kharness.runs.launch import Slot
from kharness.runs.lock import RunnerLock
from kharness.runs.status import read_status
from monitoring.bridge.interpreter import interpreter_of
from monitoring.host.environment import git_state, hardware
from monitoring.journal.files import ENVIRONMENT_JSON, JOURNAL
from monitoring.journal.lineage import Lineage
from monitoring.saved_environment import Installed

# So many packages that differ are named, those that compute before others.
MOST_PACKAGES = 8
COMPUTING = ("torch", "torchvision", "numpy", "triton", "jax", "transformers", "lightning", "accelerate")


def reproduce_asked(given: Sequence[str]) -> int:
    """Run again what `RUN=` names, without it the newest. MatrixError for a training of a checkout."""
    variables = make_variables.given(given, {}, "reproduce")
    directory = complete_run(asked_directory(variables, Path.cwd()), Path.cwd())
    if read_command(directory) is None:
        raise MatrixError(
            f"{directory} has no command to run again", hint="a training of a checkout: make reproduce there"
        )
    trackers, anyway = variables.get("TRACKER", "none"), make_variables.is_yes(variables, "ANYWAY")
    return reproduce_command(directory, trackers=trackers, anyway=anyway)


def reproduce_command(directory: Path, *, trackers: str = "none", anyway: bool = False) -> int:
    """Run it again next to the past run; 0 if every value is equal, 3 if not. MatrixError if it cannot be."""
    command, lineage = read_command(directory), Lineage.read(directory / JOURNAL)
    assert command is not None
    if not lineage.starts:
        raise MatrixError(f"{directory} has not begun", hint="kharness continue runs what has not")
    template = command.template
    states = [state if isinstance(state := start.get("git"), Mapping) else None for start in lineage.starts]
    with _code(command, states, directory, anyway=anyway) as code:
        Template(template["words"], template["environment"], _rendered(directory)).check([], code.root)
        say(f"{code.description}\nfolder: {shown(code.root)}")
        for line in (
            *_differences(directory, command, lineage, code.root),
            *_unknown(directory, lineage),
        ):
            say(line)
        place, again = _prepared(directory, command, code.root, trackers)
        say(f"run: {shown(place)}\ncommand: {again.shown}")
        os.environ.update(_slot(directory).environment())
        with RunnerLock(place):
            exit_code = supervise_single(command_launch(place, again, root=code.root), root=Path.cwd())
    if withdraw_refused(place):
        say(f"{shown(place)} is removed: nothing was run")
        return exit_code
    if not has_ended_alike(directory, place, exit_code):
        return say_not_compared(directory, place, exit_code)
    return say_verdict(directory, place, names=True)


@contextmanager
def _code(
    command: Command, states: Sequence[GitState | None], directory: Path, *, anyway: bool
) -> Iterator[Code]:
    """The folder that the command runs in, with the code that the run had.

    That is the recorded folder, or where it is not here the one that one is in.
    """
    folder = recorded if (recorded := Path(command.cwd)).is_dir() else Path.cwd()
    script = next((word for word in reversed(command.argv) if word.endswith((".py", ".sh"))), "")
    place = (folder / script).parent
    if script and place.is_dir() and all(state is not None and state == git_state(place) for state in states):
        with code_of(states, place, run=directory) as code:
            yield replace(code, root=folder)
    elif os.path.isabs(script) and not anyway:
        raise MatrixError(
            f"the code is not available: {script} has changed since, and is named by its whole path",
            hint="check out its revision there, or ANYWAY=y runs what is there and compares all the same",
        )
    else:
        with code_of(states, folder, anyway=anyway, run=directory, of_program=True) as code:
            yield code


def _rendered(directory: Path) -> Mapping[str, str]:
    """Return the texts of the files that the run was given, by name."""
    folder = directory / RENDERED
    return {path.name: path.read_text() for path in sorted(folder.iterdir())} if folder.is_dir() else {}


def _prepared(directory: Path, command: Command, root: Path, trackers: str) -> tuple[Path, Command]:
    """Make RUN_reproduced (or RUN_reproduced_2 …) next to the run."""
    planning = Planning.begin_numbered(directory.parent, f"{directory.name}_reproduced")
    place, rendered = planning.place, _rendered(directory)
    template, known = command.template, own_values(place, rendered, name=place.name)
    placed = Template(template["words"], template["environment"], rendered, template["resume"])
    words, environment = placed.filled(known)
    again = replace(
        command,
        argv=words,
        cwd=str(root),
        environment=environment,
        follow=[placed.filled_in(path, known) for path in template["follow"]],
        resume=placed.resumed(known),
        trackers={tracker: {} for tracker in tracker_list(trackers)},
    )
    with planning:
        write_command_run(again, planning.directory, rendered)
        planning.publish(newest=False)
    return place, again


def _slot(directory: Path) -> Slot:
    """Return the number of threads that the run had."""
    last = read_status(directory).last
    slot = last.slot if last is not None and last.slot is not None else {}
    return Slot(threads=int(slot.get("threads") or len(slot.get("cores", ()))))


def _differences(directory: Path, command: Command, lineage: Lineage, root: Path) -> Iterator[str]:
    """Yield in what this machine and the program's Python differ from what the run had."""
    then = lineage.starts[-1].get("hardware")
    cpu, here = (then or {}).get("cpu") if isinstance(then, Mapping) else None, hardware()["cpu"]
    if cpu is not None and cpu != here:
        yield f"differs: cpu: {cpu}, here {here}"
    if not (recorded := _environment(directory)).get("packages"):
        return
    now = Installed.of(interpreter_of(command.argv, root, {**os.environ, **command.environment}), str(root))
    if recorded["python"] != now.python:
        yield f"differs: python: {recorded['python']}, here {now.python or 'not known'}"
    packages: Mapping[str, str] = recorded["packages"]
    other = [name for name in {**packages, **now.packages} if packages.get(name) != now.packages.get(name)]
    ordered = sorted(other, key=lambda name: (name not in COMPUTING, name))
    for name in ordered[:MOST_PACKAGES]:
        yield f"differs: {name}: {packages.get(name, 'none')}, here {now.packages.get(name, 'none')}"
    if len(ordered) > MOST_PACKAGES:
        yield f"differs: {len(ordered) - MOST_PACKAGES} more packages"


def _unknown(directory: Path, lineage: Lineage) -> Iterator[str]:
    """Yield what nobody has recorded."""
    if not _environment(directory).get("packages"):
        yield "not known: the packages that the program had"
    if lineage.starts[-1].get("data_sha256") is None:
        yield "not known: the data that the program read"


def _environment(directory: Path) -> Mapping[str, Any]:
    try:
        found: Any = json.loads((directory / ENVIRONMENT_JSON).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, Mapping) else {}
