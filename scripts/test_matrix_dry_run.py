"""Print the runs of test_matrix and their duration: test_matrix_dry_run.py [NAME=value…]; writes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import fitted
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.matrix.dry_run import TIME, dry_run_lines
from kharness.matrix.planning.axis_values import given_axes
from kharness.matrix.planning.filter import parse_filter
from kharness.matrix.planning.matrix_json import planned_content
from kharness.matrix.planning.plan import PREFIX, draft, results_of, with_launches
from kharness.matrix.running.durations import read_history
from kharness.matrix.supervise import check_running
from kharness.report.judging.baseline import baseline_line
from kharness.report.power import planned_power_lines
from kharness.report.report import check_judging

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """0, or 2 for a matrix that could not start."""
    variables = make_variables.given(argv, os.environ, "test_matrix_dry_run", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    base = starting_layer(tree, output)
    given, single = given_axes(tree, variables)
    command_line = make_variables.layer(tree, single)
    chosen = parse_filter(variables.get("FILTER", ""))
    results = results_of(tree, base, command_line, output=output)
    directory = results / f"{PREFIX['matrix']}{TIME}"
    history = read_history(results, tree.affects)
    plan = with_launches(draft(tree, base, command_line, directory, chosen=chosen, given=given), ROOT)
    check_running(plan)
    summary = check_judging(plan.directory, variables, planned=planned_content(plan))
    lines = dry_run_lines(plan, history, shown=tree.shown(results))
    lines += filter(None, [baseline_line(summary)])
    lines += planned_power_lines(summary, results=results)
    print(fitted("\n".join([*lines, "nothing was started or written"])))
    return 0


if __name__ == "__main__":
    run_command(main)
