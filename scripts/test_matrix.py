"""Train every cell of MATRIX_AXES, compare them, draw the graphs: test_matrix.py [NAME=value…]."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.config.tree import Tree
from kharness.matrix.planning.axis_values import given_axes
from kharness.matrix.planning.filter import parse_filter
from kharness.matrix.planning.matrix_json import Plan, planned_content
from kharness.matrix.planning.plan import prepare
from kharness.matrix.supervise import check_running, supervise_matrix
from kharness.report.report import check_judging, told_report
from kharness.runs.latest import shown
from monitoring.counts import counted

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """0 when every cell is complete, 3 when one is not, 2 for a matrix that cannot start, 130 for Ctrl-C."""
    variables = make_variables.given(argv, os.environ, "test_matrix", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    chosen = parse_filter(variables.get("FILTER", ""))
    given, single = given_axes(tree, variables)
    plan = prepare(
        tree,
        output,
        make_variables.layer(tree, single),
        chosen=chosen,
        given=given,
        check=partial(check, given=variables),
    )
    introduce(plan)
    return supervise_matrix(plan, root=ROOT, report=partial(told_report, given=variables))


def check(plan: Plan, given: Mapping[str, str]) -> None:
    """MatrixError or ReportError for what could not be run or judged as requested."""
    check_running(plan)
    check_judging(plan.directory, given, planned=planned_content(plan))


def introduce(plan: Plan) -> None:
    """Print what is about to run, and which requests do not apply to some of it."""
    axes = " ".join(map(str, plan.axes))
    headline = f"matrix: {counted(len(plan.cells), 'run')} ({axes})\n  in {shown(plan.directory)}"
    say("\n".join([headline, *plan.note_lines()]))


if __name__ == "__main__":
    run_command(main)
