"""Train every cell of MATRIX_AXES, compare them, draw the graphs: test_matrix.py [NAME=value…]."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kharness.config import make_variables
from kharness.config.errors import run_command
from kharness.config.tree import Tree
from kharness.matrix.cells import set_aside
from kharness.matrix.delivery import alert_lines, delivery_lines, wait_for_delivery
from kharness.matrix.launchers import open_launcher
from kharness.matrix.plan import Plan, prepare
from kharness.matrix.progress import Progress
from kharness.matrix.runner import run_all
from kharness.matrix.signals import Signals
from kharness.report.report import report_lines, shown, write_report

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """0 when every cell is complete, 3 when one is not, 2 for a matrix that cannot start, 130 for Ctrl-C."""
    variables = make_variables.given(argv, os.environ)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    plan = prepare(tree, output, make_variables.layer(tree, variables))
    introduce(plan, tree)
    with Signals() as signals:
        progress = Progress(sys.stdout, len(plan.cells))
        with closing(open_launcher("local", {})) as launcher:
            run_all(plan.launches, launcher, signals, progress)
        directories = [launch.directory for launch in plan.launches]
        lacking = wait_for_delivery(directories, signals, progress.say)
    summary = write_report(plan.directory)
    told = [*report_lines(summary), *delivery_lines(lacking, ROOT), *alert_lines(directories)]
    print("\n".join(told))
    print(f"summary: {shown(plan.directory / 'summary.md')}  graphs: {shown(plan.directory / 'graphs')}/")
    if signals.stops:
        return signals.exit_code
    return 3 if summary.incomplete else 0


def introduce(plan: Plan, tree: Tree) -> None:
    """What is about to run, and what was asked for and does not apply to some of it."""
    axes = " ".join(map(str, plan.axes))
    print(f"matrix: {len(plan.cells)} runs ({axes}) in {shown(plan.directory)}", flush=True)
    for assignment, count in set_aside(tree, plan.cells):
        print(f"note: {assignment} ({assignment.origin.where}) does not apply to {count} of the runs")


if __name__ == "__main__":
    run_command(main)
