"""Train every cell of MATRIX_AXES, compare them, draw the graphs: test_matrix.py [NAME=value…]."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
from kharness.report.judging.baseline import baseline_line
from kharness.report.report import check_judging, told_report
from kharness.report.summary import Summary
from kharness.runs.latest import shown, with_lasting_baseline
from monitoring.counts import counted

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """0 when every cell is complete, 3 when one is not, 2 for a matrix that cannot start, 130 for Ctrl-C."""
    variables = with_lasting_baseline(make_variables.given(argv, os.environ, "test_matrix", root=ROOT))
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    chosen = parse_filter(variables.get("FILTER", ""))
    given, single = given_axes(tree, variables)
    judged: list[Summary] = []

    def check(plan: Plan) -> None:
        check_running(plan)
        judged.append(check_judging(plan.directory, variables, planned=planned_content(plan)))

    layer = make_variables.layer(tree, single)
    plan = prepare(tree, output, layer, chosen=chosen, given=given, check=check)
    introduce(plan, judged[-1])
    return supervise_matrix(plan, root=ROOT, report=partial(told_report, given=variables))


def introduce(plan: Plan, judged: Summary) -> None:
    """Print what is about to run, what it is compared with, and which requests do not apply to some of it."""
    axes = " ".join(axis.shown for axis in plan.axes)
    headline = f"matrix: {counted(len(plan.cells), 'run')} ({axes})\n  in {shown(plan.directory)}"
    baseline = baseline_line(judged)
    say("\n".join([headline, *[f"  {baseline}"] * bool(baseline), *plan.note_lines()]))


if __name__ == "__main__":
    run_command(main)
