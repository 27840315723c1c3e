"""Train what `.config` says, in a run directory of its own: train.py [NAME=value…]."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kharness.config import make_variables
from kharness.config.errors import run_command
from kharness.config.tree import Tree
from kharness.matrix.delivery import alert_lines, delivery_lines, wait_for_delivery
from kharness.matrix.execute import Outcome
from kharness.matrix.launchers import open_launcher
from kharness.matrix.runner import run_one
from kharness.matrix.signals import Signals
from kharness.matrix.single import prepare_single

ROOT = Path(__file__).resolve().parent.parent

# Seconds. A single run's agent goes on by itself, so there is no need to wait for long.
PATIENCE = 10.0


def main(argv: Sequence[str]) -> int:
    """The exit code of the training; 3 if it says 0 and did not do what was asked, 2 if it cannot start."""
    variables = make_variables.given(argv, os.environ)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    launch = prepare_single(tree, output, make_variables.layer(tree, variables))
    print(f"run: {launch.shown_directory}\n{launch.command_line}", flush=True)
    with Signals() as signals, closing(open_launcher("local", {})) as launcher:
        outcome = run_one(launch, launcher, signals, sys.stdout.buffer, say)
        lacking = wait_for_delivery([launch.directory], signals, say, patience=PATIENCE)
    if outcome.status != "complete":
        print(f"{outcome.status}: {outcome.attempt.reason}", file=sys.stderr)
    print("\n".join([*delivery_lines(lacking, ROOT), *alert_lines([launch.directory])]))
    print(f"run: {launch.shown_directory}  graphs: make graphs RUN={launch.shown_directory}")
    return exit_code(outcome)


def exit_code(outcome: Outcome) -> int:
    if outcome.attempt.signal is not None:
        return 128 + outcome.attempt.signal
    if outcome.attempt.exit_code == 0 and outcome.status != "complete":
        return 3
    return outcome.attempt.exit_code or 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    run_command(main)
