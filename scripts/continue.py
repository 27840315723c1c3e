"""Finish what was interrupted: continue.py [RUN=dir] [FILTER=…] [JOBS=n …]; default: the newest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.matrix.planning.begin import refuse_unplanned
from kharness.matrix.planning.locate import Found, find
from kharness.matrix.planning.needs import refuse_unmet
from kharness.matrix.planning.plan import load
from kharness.matrix.planning.settings import with_command_line
from kharness.matrix.running.remaining import Remaining, remaining
from kharness.matrix.supervise import (
    Report,
    expected_seconds,
    in_order,
    supervise,
    supervise_single,
    tell,
)
from kharness.matrix.sweep.halving import open_watcher
from kharness.matrix.sweep.leaderboard import told_leaderboard
from kharness.matrix.sweep.sweep import source_for
from kharness.report.report import check_judging, told_report
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import EXIT_FAILED
from kharness.runs.latest import asked_directory, latest_link, shown
from kharness.runs.launch import Launch
from kharness.runs.lock import RunnerLock
from monitoring.counts import counted

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """As test_matrix, or for a single training as train; 2 if somebody else runs it."""
    variables = make_variables.given(argv, os.environ, "continue", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    if not variables.get("RUN"):
        refuse_unplanned(latest_link(variables, output))
    found = find(asked_directory(variables, output), ROOT, variables.get("FILTER", ""))
    settings = with_command_line(found.settings, variables, ROOT)
    with RunnerLock(found.directory):
        if found.kind == "sweep":
            return continue_sweep(found, settings)
        if found.is_matrix:
            check_judging(found.directory, variables)
            return continue_matrix(found, settings, partial(told_report, given=variables))
        return continue_run(found.launches[0])


def continue_matrix(found: Found, settings: Mapping[str, object], report: Report) -> int:
    """Run the missing cells; of a complete matrix only the report is made again."""
    left = remaining(found.launches)
    introduce(found, left)
    if not left.launches:
        return tell(found.directory, report, chosen=found.chosen)
    refuse_unmet(left.launches)
    expected = expected_seconds(left.launches, found.directory.parent)
    return supervise(
        found.directory,
        in_order(left.launches, settings, expected, order=found.order),
        settings,
        root=ROOT,
        report=report,
        num_runs=len(left.launches),
        chosen=found.chosen,
        watcher=open_watcher(settings, [member.launch for member in found.members]),
        expected=expected,
    )


def continue_sweep(found: Found, settings: Mapping[str, object]) -> int:
    """Run the missing trials, those included that a search has not chosen yet."""
    left = remaining(found.launches)
    plan = load(found.directory, ROOT)
    source = source_for(plan, ROOT, left.launches)
    waiting = source.waiting()
    print(
        f"sweep: {'?' if waiting is None else counted(waiting, 'trial')} left in {shown(found.directory)}",
        flush=True,
    )
    tell_left(found, left)
    if source.done():
        return tell(found.directory, told_leaderboard, chosen=found.chosen)
    return supervise(
        found.directory,
        source,
        settings,
        root=ROOT,
        report=told_leaderboard,
        num_runs=waiting,
        chosen=found.chosen,
        watcher=open_watcher(settings, plan.launches),
    )


def continue_run(launch: Launch) -> int:
    """Finish a single training."""
    left = remaining([launch])
    where = launch.shown_directory
    for _, process in left.alive:
        raise MatrixError(f"{where} still runs, as {process}", hint="wait for its end, or stop it first")
    for _, reason in left.left:
        print(f"{where} would only fail again: {reason}")
        print(f"hint: to try it all the same: make test-rerun TARGET={where}")
        return EXIT_FAILED
    if not left.launches:
        print(f"{where} is complete")
        return 0
    print(f"run: {where}\n{left.launches[0].command_line}", flush=True)
    return supervise_single(left.launches[0], root=ROOT)


def introduce(found: Found, left: Remaining) -> None:
    """What is to run, and what is not although it is not complete."""
    where = shown(found.directory)
    total = len(found.launches)
    runs = counted(total, "run")
    if left.launches:
        print(f"matrix: {len(left.launches)} of {runs} left in {where}", flush=True)
    elif len(left.complete) == total:
        print(f"matrix: complete: {runs} in {where}")
    else:
        print(f"matrix: nothing is left to run of {runs} in {where}")
    tell_left(found, left)


def tell_left(found: Found, left: Remaining) -> None:
    """The cells that are not complete and are not run either."""
    for name, reason in left.left:
        print(f"left: {name} would only fail again: {reason}")
    if left.left:
        print(f"hint: to try them all the same: make test-rerun TARGET={shown(found.directory)}")
    for name, process in left.alive:
        print(f"left: {name} still runs without its runner, as {process}")


if __name__ == "__main__":
    run_command(main)
