"""A single training: configured, given a directory of its own, ready to run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin, Resolved
from kharness.config.generate import write_config, write_new_config
from kharness.config.places import COMMAND, has_model
from kharness.config.project_name import run_name
from kharness.config.tree import CONFIG, Tree
from kharness.environment.parts import bring_for
from kharness.matrix.launchers import schedules, settings_of_one
from kharness.matrix.machine.threads import planning_machine
from kharness.matrix.planning.begin import Planning
from kharness.matrix.planning.needs import refuse_unrunnable
from kharness.matrix.planning.plan import with_threads
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import REFUSED
from kharness.runs.files import LATEST
from kharness.runs.launch import Launch
from kharness.runs.rundir import link_latest, results_directory
from kharness.runs.status import PENDING, RunStatus, read_status, write_status
from monitoring.journal.files import RUN_JSON


@dataclass(frozen=True)
class Single:
    """A training that has its directory."""

    launch: Launch
    settings: Mapping[str, object]
    """Those of its launcher."""
    described: str
    """The model, the preset, and what differs from both: `lenet5, preset default; SEED=3`."""
    before: Path | None
    """The run or matrix that was the newest before it."""


def withdraw_refused(directory: Path, *, before: Path | None = None) -> bool:
    """Remove the directory of a training that was refused before its run began; whether it was one.

    `latest` is again what it was `before`.
    """
    last = read_status(directory).last
    if last is None or last.cause != REFUSED or (directory / RUN_JSON).exists():
        return False
    if directory.resolve() == (link := directory.parent / LATEST).resolve():
        link.unlink()
        if before is not None:
            link_latest(before)
    shutil.rmtree(directory)
    return True


def prepare_single(tree: Tree, output: Path, base: Layer, command_line: Layer) -> Single | None:
    """Check the configuration and what it needs here, then make RESULTS_DIR/<run name>/ with it.

    MatrixError or ConfigError before anything is written.

    `output` is where `.config` lives; if it has none, `base`, its starting_layer, becomes it. A name that is
    taken gets a number, and the run carries the same name in the trackers. None where DRY_RUN=y: there is no
    run.
    """
    configured = tree.resolve(base)
    resolved = tree.resolve(base, command_line)
    model = str(resolved.values["MODEL"])
    if not resolved.values.get(COMMAND) and not has_model(tree.root, model):
        raise MatrixError(f"MODEL={model}: there is no {model}/train.py", hint="choose another model")
    if resolved.values.get("DRY_RUN"):
        return None
    bring_for([resolved.values])
    try:
        wanted = run_name(resolved.values, tree.root, datetime.now(UTC))
    except ValueError as error:
        raise MatrixError(f"TRACKER_RUN_NAME: {error}", hint="give CONFIG_TRACKER_RUN_NAME=name") from error
    results = results_directory(str(resolved.values["RESULTS_DIR"]), output)
    settings = settings_of_one(resolved.values)
    wished = Launch(wanted, results / wanted, tree.root, model, resolved.values)
    refuse_unrunnable([on_cluster(wished, settings)], settings)
    before = results / LATEST
    previous = before.resolve() if before.is_symlink() and before.exists() else None
    planning = Planning.begin_numbered(results, wanted)
    directory = planning.place
    name = [Assignment("TRACKER_RUN_NAME", directory.name, Origin("make train", "the name of the run"))]
    with planning:
        resolved = tree.resolve(base, command_line, name)
        write_new_config(resolved, planning.directory, root=tree.root)
        write_status(planning.directory, RunStatus(PENDING))
        if not (output / CONFIG).exists():
            write_config(configured, output, root=tree.root)
        planning.publish()
    launch = Launch(directory.name, directory, tree.root, model, resolved.values)
    settings["MATRIX_DETACH"] = resolved.values.get("MATRIX_DETACH", False)
    return Single(on_cluster(launch, settings), settings, described(tree, resolved), previous)


def on_cluster(launch: Launch, settings: Mapping[str, object]) -> Launch:
    """The launch with the CPU threads that its job has; on this machine the training chooses."""
    if not schedules(settings):
        return launch
    return with_threads(launch, settings, planning_machine([launch.asked], settings=settings))


def described(tree: Tree, resolved: Resolved) -> str:
    """A configuration in a line: the model, presets, and `SYMBOL=value` of what differs from them."""
    needed = resolved.beyond_defaults()
    members = {m: f"{alias}={value}" for alias, of in tree.aliases.items() for value, m in of.items()}
    presets: dict[str, None] = {}
    changed: dict[str, None] = {}
    for assignment in resolved.asked:
        shown = members.get(assignment.symbol, str(assignment))
        if assignment.symbol not in needed or shown.startswith(("MODEL=", "TRACKER_RUN_NAME=")):
            continue
        if assignment.origin.kind == "preset":
            presets[f", preset {Path(assignment.origin.where.rpartition(':')[0]).name}"] = None
        else:
            changed[shown] = None
    values = f"; {' '.join(changed)}" if changed else ""
    return f"{resolved.values['MODEL']}{''.join(presets)}{values}"
