"""Finish what was interrupted: continue.py [RUN=dir] [FILTER=…] [JOBS=n …]; default: the newest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.matrix.planning.begin import refuse_unplanned
from kharness.matrix.planning.settings import with_command_line
from kharness.matrix.resume import continue_found
from kharness.matrix.selected_runs import find
from kharness.report.report import check_judging, told_report
from kharness.runs.latest import asked_directory, latest_link
from kharness.runs.lock import RunnerLock

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Return the exit code of test_matrix, or of train for a single training; 2 if another runner holds
    it.
    """
    variables = make_variables.given(argv, os.environ, "continue", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    if not variables.get("RUN"):
        refuse_unplanned(latest_link(variables, output))
    found = find(asked_directory(variables, output), ROOT, variables.get("FILTER", ""))
    settings = with_command_line(found.settings, variables, ROOT)
    with RunnerLock(found.directory):
        if found.kind == "matrix":
            check_judging(found.directory, variables)
        report = partial(told_report, given=variables)
        return continue_found(found, settings, root=ROOT, report=report)


if __name__ == "__main__":
    run_command(main)
