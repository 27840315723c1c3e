"""Run a matrix from its first launch to its exit code: shared by test_matrix, continue, test-rerun and
sweep.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from kharness.config.affects import Affects
from kharness.config.config_py import read_affects
from kharness.config.make.typed import typed
from kharness.config.output import say
from kharness.config.values import whole
from kharness.matrix.launchers import open_launcher, schedules
from kharness.matrix.machine.resources import Elsewhere, MachineResources, open_resources
from kharness.matrix.planning.filter import Filter
from kharness.matrix.planning.matrix_json import Plan, read_plan
from kharness.matrix.planning.needs import refuse_unrunnable
from kharness.matrix.planning.sources import import_from
from kharness.matrix.running.delivery import Say, apart, told_lines
from kharness.matrix.running.durations import read_history
from kharness.matrix.running.progress import MatrixProgress
from kharness.matrix.running.protocols import Queue, Source, Watcher, longest_first
from kharness.matrix.running.runner import Detached, Limits, Runner
from kharness.matrix.running.signals import Signals, hangup_ignored
from kharness.matrix.supervise_single import tell_detached
from kharness.matrix.sweep.halving import open_watcher
from kharness.matrix.sweep.leaderboard import told_leaderboard
from kharness.matrix.sweep.search import Space, examples
from kharness.matrix.sweep.sweep import num_trials, source_for
from kharness.matrix.time_needed import time_lines
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import EXIT_FAILED
from kharness.runs.latest import shown
from kharness.runs.launch import Launch
from kharness.runs.lock import RunnerLock
from kharness.runs.standing import is_missing
from kharness.runs.status import RunStatus
from monitoring.host.steady_clock import SteadyClock

# Trials of a search at once on a cluster, where JOBS does not say.
SEARCH_JOBS = 8

EVERY_CELL = Filter()

Report = Callable[[Path, Say], int]
"""Says what there is to say of a directory, then writes it; its exit code is 3 for a regression, else 0."""


def check_running(plan: Plan) -> None:
    """MatrixError for a plan that this machine could not run: checked before it is written."""
    if any(launch.asked.get("DRY_RUN") for launch in plan.launches):
        raise MatrixError(
            "DRY_RUN=y: nothing is trained that a matrix could compare",
            hint="make check-model checks one training, make test_matrix_dry_run prints a matrix",
        )
    open_watcher(plan.settings, plan.launches)
    refuse_unrunnable(plan.launches, plan.settings)


def supervise(
    directory: Path,
    source: Source,
    settings: Mapping[str, object],
    *,
    root: Path,
    report: Report,
    chosen: Filter = EVERY_CELL,
    watcher: Watcher | None = None,
    expected: Mapping[str, float] | None = None,
    adopted: Sequence[tuple[Launch, RunStatus]] = (),
) -> int:
    """Run all launches of a source and report; returns 0, or 3 if a chosen cell is not complete.

    The caller holds the RunnerLock of the directory. 128 + n when signal n requested the stop. `expected` has
    the seconds that cells took in earlier matrices, by name.
    """
    clock = SteadyClock()
    import_from(directory)
    with Signals() as signals:
        waiting = source.waiting()
        num_runs = None if waiting is None else waiting + len(adopted)
        progress = MatrixProgress(sys.stdout, num_runs, expected=expected)
        resources = _resources(settings, source, progress.say)
        launcher = open_launcher(str(settings.get("LAUNCHER", "local")), settings, progress.say)
        with closing(launcher):
            try:
                outcomes = Runner(
                    source,
                    launcher,
                    resources,
                    signals,
                    progress,
                    limits=Limits.read(settings, list(read_plan(directory).quarantine)),
                    watcher=watcher,
                    adopted=adopted,
                ).run()
            except Detached as left:
                tell_detached(directory, left)
                return 0
        if watcher is not None and (line := watcher.at_end()):
            progress.say(line)
        started = [directory / name for name in outcomes]
        told = told_lines(started, signals, progress.say, root, since=clock.earliest())
    code = tell(directory, report, chosen=chosen, told=told)
    if not signals.stops:
        return code
    if code == EXIT_FAILED:
        say(f"resume with: {typed('continue', shown(directory))}")
    return signals.exit_code


def supervise_matrix(plan: Plan, *, root: Path, report: Report) -> int:
    """Run a matrix that has just been planned, as `supervise` does."""
    with RunnerLock(plan.directory):
        expected = expected_seconds(plan.launches, plan.directory.parent)
        for line in time_lines(plan, plan.launches, plan.settings, expected, jobs=num_jobs(plan.settings)):
            say(line)
        return supervise(
            plan.directory,
            in_order(plan.launches, plan.settings, expected, order=plan.order),
            plan.settings,
            root=root,
            report=report,
            watcher=open_watcher(plan.settings, plan.launches),
            expected=expected,
        )


def supervise_sweep(plan: Plan, open_space: Callable[[], Space], *, root: Path) -> int:
    """Run a sweep that has just been planned, as `supervise` does; its trials are drawn from the space."""
    with RunnerLock(plan.directory):
        results = plan.directory.parent
        if plan.launches:
            likely, expected = plan.launches, expected_seconds(plan.launches, results)
        else:  # what a search will choose is not known yet
            open_space = cache(open_space)
            space = open_space()
            likely = examples(space, plan.directory, num_trials(plan))
            expected = expected_seconds(likely, results, space.affects)
        for line in time_lines(plan, likely, plan.settings, expected, jobs=num_jobs(plan.settings)):
            say(line)
        return supervise(
            plan.directory,
            source_for(plan, open_space, plan.launches, plan.settings),
            plan.settings,
            root=root,
            report=told_leaderboard,
            watcher=open_watcher(plan.settings, plan.launches),
            expected=expected,
        )


def _resources(settings: Mapping[str, object], source: Source, say: Say) -> MachineResources | Elsewhere:
    if not schedules(settings):
        return open_resources(settings, say)
    # A search chooses its next trial by those that have ended: given all at once it would choose blindly.
    known = source.waiting() is not None
    return Elsewhere(0 if known else num_jobs(settings, SEARCH_JOBS))


def tell(directory: Path, report: Report, *, chosen: Filter = EVERY_CELL, told: Sequence[str] = ()) -> int:
    """Report a matrix as it stands, after the lines `told`.

    3 if a chosen cell is not complete and nothing excuses it, else the report's own code.
    """
    # The pictures of a thousand cells take hundreds of megabytes.
    for line in told:
        say(line)
    with hangup_ignored():
        code = apart(partial(report, directory), say)
    plan = read_plan(directory)
    names = [cell.name for cell in plan.cells if chosen.matches(cell.name, cell.values)]
    missing = [name for name in names if name not in plan.quarantine and is_missing(directory / name)]
    return EXIT_FAILED if missing else code


def expected_seconds(
    launches: Sequence[Launch], results: Path, affects: Affects | None = None
) -> dict[str, float]:
    """Return the expected seconds of each launch by name, as far as the earlier runs in `results` allow.

    What options affect stands in the directory of a launch, where it has one.
    """
    if affects is None:
        affects = read_affects(launches[0].directory) if launches else Affects()
    history = read_history(results, affects)
    found = {launch.name: history.expected(launch.asked) for launch in launches}
    return {name: estimate.seconds for name, estimate in found.items() if estimate is not None}


def in_order(
    launches: Sequence[Launch],
    settings: Mapping[str, object],
    expected: Mapping[str, float],
    *,
    order: Sequence[str],
) -> Queue:
    """The launches in the plan's `order`; without one as listed, or the longest first in several slots."""
    launches = [replace(launch, expected=expected.get(launch.name)) for launch in launches]
    if order:
        places = {name: place for place, name in enumerate(order)}
        return Queue(sorted(launches, key=lambda launch: places.get(launch.name, len(places))))
    if settings.get("MATRIX_JOBS", 1) == 1:
        return Queue(launches)
    return Queue(longest_first(launches, lambda launch: expected.get(launch.name)))


def num_jobs(settings: Mapping[str, object], unknown: int = 0) -> int:
    """Return how many cells run at once, as far as that is known; `unknown` where the cores are not."""
    return whole(settings, "MATRIX_JOBS", 1) or unknown or os.cpu_count() or 1
