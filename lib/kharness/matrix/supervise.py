"""Run a matrix from its first launch to its exit code: shared by test_matrix, continue, test-rerun and
sweep.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from kharness.config.affects import Affects
from kharness.config.config_py import CONFIG_PY, read_affects, read_values
from kharness.config.make.typed import typed, typed_comparison
from kharness.config.output import say
from kharness.config.writing import guarded
from kharness.matrix.launchers import STARTS_NO_SERVERS, open_launcher, schedules
from kharness.matrix.machine.elsewhere import Elsewhere
from kharness.matrix.machine.resources import open_resources
from kharness.matrix.planning.filter import Filter
from kharness.matrix.planning.matrix_json import Plan, read_plan
from kharness.matrix.planning.needs import refuse_unrunnable
from kharness.matrix.running.delivery import PATIENCE, delivery_lines, wait_for_delivery
from kharness.matrix.running.durations import read_history
from kharness.matrix.running.execute import Outcome
from kharness.matrix.running.in_child import Say, apart
from kharness.matrix.running.printed_run import PrintedJob, PrintedRun
from kharness.matrix.running.progress import MatrixProgress
from kharness.matrix.running.protocols import Queue, Resources, Source, Watcher, longest_first
from kharness.matrix.running.runner import Detached, Limits, run_all, run_one
from kharness.matrix.running.signals import Signals, hangup_ignored
from kharness.matrix.sweep.halving import open_watcher
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import EXIT_FAILED, EXIT_STOPPED, REFUSED, STOPPED_EARLY
from kharness.runs.files import LATEST
from kharness.runs.latest import shown
from kharness.runs.launch import Launch
from kharness.runs.lost_status import known_status
from kharness.runs.rundir import has_plan
from kharness.runs.status import COMPLETE, INTERRUPTED, KILLED, TIMEOUT, RunStatus
from monitoring.alert_sentences import alert_lines
from monitoring.counts import counted
from monitoring.host.steady_clock import SteadyClock

# Seconds. A single run's agent continues by itself in the background, so there is no need to wait for long.
SINGLE_PATIENCE = 10.0
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
    num_runs: int | None,
    chosen: Filter = EVERY_CELL,
    watcher: Watcher | None = None,
    expected: Mapping[str, float] | None = None,
    adopted: Sequence[tuple[Launch, RunStatus]] = (),
) -> int:
    """Run what the source hands out, report, and say how it went: 0, or 3 if a chosen cell is not complete.

    The caller holds the RunnerLock of the directory. 128 + n when signal n requested the stop. `num_runs` is
    None where that is not known; `expected` has the seconds that cells took in earlier matrices, by name.
    """
    clock = SteadyClock()
    with Signals() as signals:
        progress = MatrixProgress(sys.stdout, num_runs, expected=expected)
        resources = _resources(settings, source, progress.say)
        launcher = open_launcher(str(settings.get("LAUNCHER", "local")), settings, progress.say)
        with closing(launcher):
            try:
                outcomes = run_all(
                    source,
                    launcher,
                    resources,
                    signals,
                    progress,
                    limits=Limits.read(settings, list(read_plan(directory).quarantine)),
                    watcher=watcher,
                    adopted=adopted,
                )
            except Detached as left:
                _tell_detached(directory, left)
                return 0
        started = [directory / name for name in outcomes]
        told = _told(started, signals, progress.say, root, since=clock.earliest())
    code = tell(directory, report, chosen=chosen, told=told)
    if not signals.stops:
        return code
    if code == EXIT_FAILED:
        print(f"resume with: {typed('continue', shown(directory))}")
    return signals.exit_code


def _resources(settings: Mapping[str, object], source: Source, say: Say) -> Resources:
    if not schedules(settings):
        return open_resources(settings, say)
    # A search chooses its next trial by those that have ended: given all at once it would choose blindly.
    known = source.waiting() is not None
    return Elsewhere(0 if known else num_jobs(settings, SEARCH_JOBS))


def _tell_detached(directory: Path, left: Detached) -> None:
    run = shown(directory)
    say(f"detached: the scheduler has {counted(len(left.names), 'run')}, and goes on without make")
    say(f"next: make status RUN={run}")
    say(f"      make continue RUN={run}  # watch on, and report at the end")


def _told(
    started: Sequence[Path],
    signals: Signals,
    say: Say,
    root: Path,
    *,
    since: float,
    patience: float = PATIENCE,
) -> list[str]:
    """Wait for the trackers; then what they lack, and the alerts. What fails there costs no report."""
    lines: list[str] = []

    def warn(line: str) -> None:
        lines.append(f"warning: {line}")

    def delivered() -> list[str]:
        return delivery_lines(started, wait_for_delivery(started, signals, say, patience=patience), root)

    none: list[str] = []
    told = guarded("delivery", delivered, none, warn)
    return [*told, *guarded("alerts", lambda: alert_lines(started, since=since), none, warn), *lines]


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
    missing = [name for name in names if name not in plan.quarantine and _is_missing(directory / name)]
    return EXIT_FAILED if missing else code


def supervise_single(
    launch: Launch,
    *,
    root: Path,
    settings: Mapping[str, object] = {},
    adopted: RunStatus | None = None,
    complete: Callable[[], Sequence[str]] = list,
) -> int:
    """Run a single training, its output passed on; its own exit code, 3 if it claims a success that is none.

    75 where it was stopped, wherever it was then; 128 + n after signal n. The caller holds the RunnerLock of
    its directory. By `settings` it is a job of a scheduler; `adopted` is the status of one that is already.
    Lines of `complete` are printed at the end of one that is complete.
    """
    clock = SteadyClock()
    with Signals() as signals:
        try:
            outcome = _outcome_of_single(launch, signals, settings, adopted)
        except Detached as left:
            _tell_detached(launch.directory, left)
            return 0
        told = _told([launch.directory], signals, say, root, since=clock.earliest(), patience=SINGLE_PATIENCE)
    # A training that is refused has said why.
    if outcome.status != COMPLETE and outcome.attempt.cause != REFUSED:
        print(f"{outcome.status}: {outcome.attempt.reason}", file=sys.stderr)
    if outcome.status in (INTERRUPTED, KILLED, TIMEOUT):
        print(f"resume with: {typed('continue', launch.shown_directory)}")
    for line in told:
        print(line)
    if outcome.status == COMPLETE:
        for line in complete():
            print(line)
    return _exit_code(outcome)


def _outcome_of_single(
    launch: Launch, signals: Signals, settings: Mapping[str, object], adopted: RunStatus | None
) -> Outcome:
    if not schedules(settings):
        # For one run there is nothing to share, so that a process of its own starts sooner.
        with closing(open_launcher("local", STARTS_NO_SERVERS, say)) as launcher:
            return run_one(launch, launcher, signals, sys.stdout)
    with (
        PrintedRun(launch.directory, sys.stdout) as view,
        closing(open_launcher(str(settings["LAUNCHER"]), settings, view.say)) as launcher,
    ):
        outcomes = run_all(
            Queue([] if adopted else [launch]),
            launcher,
            Elsewhere(),
            signals,
            PrintedJob(view),
            limits=Limits(detach=bool(settings.get("MATRIX_DETACH", False))),
            adopted=[(launch, adopted)] if adopted else [],
        )
    return outcomes[launch.name]


def next_lines(launch: Launch, before: Path | None) -> list[str]:
    """Return the suggested next commands after a training; `before` is the run or matrix that was the newest
    then.
    """
    link = launch.directory.parent / LATEST
    run = shown(link) if link.resolve() == launch.directory.resolve() else launch.shown_directory
    commands = {typed("report", run): "its graphs and tables as files"}
    if before is not None and _is_comparable(before, launch.model):
        commands[typed_comparison(shown(before), run)] = ""
    else:
        commands["make test_matrix SEED=1..5"] = "several seeds: better, or noise?"
    if launch.asked.get("ENABLE_TRACKIO"):
        commands["make trackio-view"] = "its dashboard"
    return [
        f"{'next: ' if not place else '      '}{command}{f'  # {what}' if what else ''}"
        for place, (command, what) in enumerate(commands.items())
    ]


def _is_comparable(run: Path, model: str) -> bool:
    """Whether it is a complete single training of the model."""
    if has_plan(run) or _is_missing(run):
        return False
    return read_values(run / CONFIG_PY).get("MODEL") == model


def expected_seconds(launches: Sequence[Launch], results: Path) -> dict[str, float]:
    """Return the expected seconds of each launch by name, as far as the earlier runs in `results` allow."""
    affects = read_affects(launches[0].directory) if launches else Affects()
    history = read_history(results, affects)
    found = {launch.name: history.expected(launch.asked) for launch in launches}
    return {name: estimate.seconds for name, estimate in found.items() if estimate is not None}


def in_order(
    launches: Sequence[Launch],
    settings: Mapping[str, object],
    expected: Mapping[str, float],
    *,
    order: Sequence[str] = (),
) -> Queue:
    """In the plan's `order`; without one as listed, or the longest first where several run at once."""
    if order:
        places = {name: place for place, name in enumerate(order)}
        return Queue(sorted(launches, key=lambda launch: places.get(launch.name, len(places))))
    if settings.get("MATRIX_JOBS", 1) == 1:
        return Queue(launches)
    return Queue(longest_first(launches, lambda launch: expected.get(launch.name)))


def num_jobs(settings: Mapping[str, object], unknown: int = 0) -> int:
    """How many run at once, as far as that is known; `unknown` in place of this machine's cores."""
    jobs = settings.get("MATRIX_JOBS", 1)
    assert isinstance(jobs, int)
    return jobs or unknown or os.cpu_count() or 1


def _is_missing(directory: Path) -> bool:
    try:
        status = known_status(directory, {})
    except MatrixError:
        return True
    stopped_early = status.last is not None and status.last.cause == STOPPED_EARLY
    return status.status != COMPLETE and not stopped_early


def _exit_code(outcome: Outcome) -> int:
    if outcome.status == COMPLETE:
        return 0
    if outcome.status == INTERRUPTED:
        return EXIT_STOPPED
    if outcome.attempt.signal is not None:
        return 128 + outcome.attempt.signal
    return outcome.attempt.exit_code or EXIT_FAILED
