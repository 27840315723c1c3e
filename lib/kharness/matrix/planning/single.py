"""A single training: configured, given a directory of its own, ready to run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.generate import write_config, write_new_config
from kharness.config.presets import starting_layer
from kharness.config.project_name import run_name
from kharness.config.tree import CONFIG, Tree
from kharness.matrix.planning.begin import Planning
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch
from kharness.runs.rundir import numbered, results_directory
from kharness.runs.status import PENDING, RunStatus, write_status


def prepare_single(tree: Tree, output: Path, command_line: Layer) -> Launch | None:
    """Check the configuration, then make RESULTS_DIR/<run name>/ with it; nothing is written before.

    `output` is where `.config` lives; if it has none, the default preset becomes it. A name that is taken
    gets a number, and the run carries the same name in the trackers. None where DRY_RUN=y: there is no run.
    """
    base = starting_layer(tree, output)
    configured = tree.resolve(base)
    resolved = tree.resolve(base, command_line)
    model = str(resolved.values["MODEL"])
    if not (tree.root / model / "train.py").is_file():
        raise MatrixError(f"MODEL={model}: there is no {model}/train.py", hint="choose another model")
    if resolved.values.get("DRY_RUN"):
        return None
    try:
        wanted = run_name(resolved.values, tree.root, datetime.now(UTC))
    except ValueError as error:
        raise MatrixError(f"TRACKER_RUN_NAME: {error}", hint="give CONFIG_TRACKER_RUN_NAME=name") from error
    results = results_directory(str(resolved.values["RESULTS_DIR"]), output)
    attempt = 1
    while (planning := Planning.begin(results, numbered(wanted, attempt))) is None:
        attempt += 1
    directory = planning.place
    name = [Assignment("TRACKER_RUN_NAME", directory.name, Origin("make train", "the name of the run"))]
    with planning:
        resolved = tree.resolve(base, command_line, name)
        write_new_config(resolved, planning.directory, root=tree.root)
        write_status(planning.directory, RunStatus(PENDING))
        if not (output / CONFIG).exists():
            write_config(configured, output, root=tree.root)
        planning.publish()
    return Launch(directory.name, directory, tree.root, model, resolved.values)
