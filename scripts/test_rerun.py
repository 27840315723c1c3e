"""Run cells again from scratch, keeping the old records: test_rerun.py [TARGET=dir] [FILTER=…] [JOBS=n …]."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.environment.parts import bring_for
from kharness.matrix.planning.begin import refuse_unplanned
from kharness.matrix.planning.matrix_json import read_plan
from kharness.matrix.planning.needs import refuse_unrunnable
from kharness.matrix.planning.settings import with_command_line
from kharness.matrix.planning.single import on_cluster
from kharness.matrix.running.pending_cells import to_run_again
from kharness.matrix.selected_runs import find
from kharness.matrix.supervise import expected_seconds, in_order, num_jobs, supervise, tell
from kharness.matrix.supervise_single import supervise_single
from kharness.matrix.time_needed import time_lines
from kharness.report.report import check_judging, told_report
from kharness.runs.latest import asked_directory, latest_link, shown, with_lasting_baseline
from kharness.runs.lock import RunnerLock
from monitoring.counts import counted

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Run the cells that FILTER selects again, without it all that failed; return the exit code of
    test_matrix.
    """
    variables = with_lasting_baseline(make_variables.given(argv, os.environ, "test_rerun", root=ROOT))
    output = make_variables.output_directory(variables, ROOT)
    if not variables.get("TARGET"):
        refuse_unplanned(latest_link(variables, output))
    found = find(asked_directory(variables, output, name="TARGET"), ROOT, variables.get("FILTER", ""))
    settings = with_command_line(found.settings, variables, ROOT)
    with RunnerLock(found.directory):
        chosen = bool(found.chosen.text) or not found.is_matrix
        again = to_run_again(found.launches, settings, failed_only=not chosen)
        bring_for(launch.asked for launch in again)
        if not found.is_matrix:
            refuse_unrunnable(again, settings)
            return supervise_single(on_cluster(again[0], settings), root=ROOT, settings=settings)
        check_judging(found.directory, variables)
        report = partial(told_report, given=variables)
        where = shown(found.directory)
        if not again:
            say(f"no run in {where} has failed; FILTER=… runs others again")
            return tell(found.directory, report)
        say(f"matrix: {len(again)} of {counted(len(found.members), 'run')} again from scratch in {where}")
        refuse_unrunnable(again, settings)
        expected = expected_seconds(again, found.directory.parent)
        plan, jobs = read_plan(found.directory), num_jobs(settings)
        say("\n".join(time_lines(plan, again, settings, expected, jobs=jobs, begun=True)))
        return supervise(
            found.directory,
            in_order(again, settings, expected, order=found.order),
            settings,
            root=ROOT,
            report=report,
            chosen=found.chosen,
            expected=expected,
        )


if __name__ == "__main__":
    run_command(main)
