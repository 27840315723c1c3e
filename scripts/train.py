"""Train what `.config` says, in a run directory of its own: train.py [NAME=value…].

With DRY_RUN one step checks it, as scripts/check_model.py does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import wrapped
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.matrix.dry_run import check_model
from kharness.matrix.planning.single import prepare_single, withdraw_refused
from kharness.matrix.supervise_single import next_lines, supervise_single
from kharness.report.report import page_line
from kharness.runs.lock import RunnerLock

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """The exit code of the training; 3 if it exits with 0 but ran other values, 2 if it cannot start.

    0 also for a job that is left to a scheduler (DETACH=y).
    """
    variables = make_variables.given(argv, os.environ, "train", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    layer = make_variables.layer(tree, variables)
    base = starting_layer(tree, output)
    single = prepare_single(tree, output, base, layer)
    if single is None:
        return check_model(tree, base, layer)
    launch = single.launch
    print(f"run: {launch.shown_directory}")
    print(wrapped(f"configuration: {single.described}"), flush=True)

    def complete() -> list[str]:
        return [page_line(launch.directory), *next_lines(launch, single.before)]

    with RunnerLock(launch.directory):
        code = supervise_single(launch, root=ROOT, settings=single.settings, complete=complete)
    if withdraw_refused(launch.directory, before=single.before):
        print(f"{launch.shown_directory} is removed: nothing was trained", file=sys.stderr)
    return code


if __name__ == "__main__":
    run_command(main)
