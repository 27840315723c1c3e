"""Train over ranges of hyperparameters, best first in the end: sweep.py RANGE_CONFIG=file [NAME=value…]."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.config.tree import Tree
from kharness.matrix.supervise import check_running, supervise_sweep
from kharness.matrix.sweep.ranges import range_file
from kharness.matrix.sweep.sweep import TreeSpace, opening, prepare_sweep

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Return 0 when every trial is complete, 3 when one is not, 2 for a sweep that cannot start."""
    variables = make_variables.given(argv, os.environ, "sweep", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    command_line = make_variables.layer(tree, variables)
    plan = prepare_sweep(tree, output, range_file(variables), command_line, check=check_running)
    say("\n".join(opening(plan)))
    return supervise_sweep(plan, partial(TreeSpace.of, plan, ROOT), root=ROOT)


if __name__ == "__main__":
    run_command(main)
