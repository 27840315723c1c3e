"""Check the configured model by one step of its training, and keep nothing: check_model.py [NAME=value…]."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.matrix.dry_run import check_model

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """The exit code of the training that took the step."""
    variables = make_variables.given(argv, os.environ, "check-model", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    return check_model(tree, starting_layer(tree, output), make_variables.layer(tree, variables))


if __name__ == "__main__":
    run_command(main)
