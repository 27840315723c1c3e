"""Run the rest of a matrix, a sweep or a single training (`make continue`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kharness.config.make.typed import typed
from kharness.config.output import say
from kharness.environment.parts import bring_for
from kharness.matrix.commands.planned import launcher_words
from kharness.matrix.commands.sweep import CommandSpace
from kharness.matrix.launchers import LAUNCHERS, queue_line
from kharness.matrix.overview import seconds_to_go
from kharness.matrix.planning.matrix_json import Plan, read_plan
from kharness.matrix.planning.needs import refuse_unrunnable
from kharness.matrix.planning.plan import load
from kharness.matrix.planning.single import on_cluster
from kharness.matrix.running.pending_cells import Remaining, remaining, withdraw_waiting
from kharness.matrix.selected_runs import SelectedRuns
from kharness.matrix.supervise import Report, expected_seconds, in_order, num_jobs, supervise, tell
from kharness.matrix.supervise_single import next_lines, supervise_single
from kharness.matrix.sweep.halving import open_watcher
from kharness.matrix.sweep.leaderboard import told_leaderboard
from kharness.matrix.sweep.sweep import TreeSpace, source_for
from kharness.matrix.time_needed import time_lines
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import EXIT_FAILED
from kharness.runs.latest import shown
from kharness.runs.launch import Launch
from monitoring.counts import counted


def continue_found(
    found: SelectedRuns,
    settings: Mapping[str, object],
    *,
    root: Path,
    report: Report,
    page: Callable[[Path], Sequence[str]] = lambda run: (),
) -> int:
    """Run what is left, then report; an exit code, as of what began it. The caller holds the lock.

    `page` writes that of a single training, and returns its line. MatrixError for one that still runs.
    """
    changed = {name for name, value in settings.items() if found.settings.get(name) != value}
    decide = {*LAUNCHERS.symbols.values()} - {"MATRIX_JOBS"}  # how a job is submitted
    submits = any(name.startswith("LAUNCHER") or name in decide for name in changed)
    if submits and (num := withdraw_waiting(found.launches, settings)):
        print(f"taken out of the queue: {counted(num, 'run')}, to be started as asked now", flush=True)
    if found.kind == "sweep":
        return _continue_sweep(found, settings, root)
    if found.is_matrix:
        return _continue_matrix(found, settings, root, report)
    return _continue_run(found.launches[0], settings, root, page)


def _continue_matrix(found: SelectedRuns, settings: Mapping[str, object], root: Path, report: Report) -> int:
    """Run the missing cells; of a complete matrix only the report is made again."""
    left = remaining(found.launches, settings)
    _introduce(found, left)
    if not left.launches and not left.adopted:
        return tell(found.directory, report, chosen=found.chosen)
    refuse_unrunnable(left.launches, settings)
    bring_for(launch.asked for launch in left.launches)
    expected = expected_seconds(left.launches, found.directory.parent)
    _tell_time(found, read_plan(found.directory), left, settings, expected)
    return supervise(
        found.directory,
        in_order(left.launches, settings, expected, order=found.order),
        settings,
        root=root,
        report=report,
        chosen=found.chosen,
        watcher=open_watcher(settings, [member.launch for member in found.members]),
        expected=expected,
        adopted=left.adopted,
    )


def _continue_sweep(found: SelectedRuns, settings: Mapping[str, object], root: Path) -> int:
    """Run the missing trials, those included that a search has not chosen yet."""
    left = remaining(found.launches, settings)
    plan = load(found.directory, root)
    space = partial(CommandSpace.of, plan) if plan.template else partial(TreeSpace.of, plan, root)
    source = source_for(plan, space, left.launches, settings)
    waiting = source.waiting()
    say(f"sweep: {'?' if waiting is None else counted(waiting, 'trial')} left in {shown(found.directory)}")
    _tell_left(found, left)
    bring_for(launch.asked for launch in plan.launches)
    if source.done():
        return tell(found.directory, told_leaderboard, chosen=found.chosen)
    expected = expected_seconds(left.launches, found.directory.parent)
    _tell_time(found, plan, left, settings, expected, more=(waiting or 0) - len(left.launches))
    return supervise(
        found.directory,
        source,
        settings,
        root=root,
        report=told_leaderboard,
        chosen=found.chosen,
        watcher=open_watcher(settings, plan.launches),
        expected=expected,
    )


def _continue_run(
    launch: Launch, settings: Mapping[str, object], root: Path, page: Callable[[Path], Sequence[str]]
) -> int:
    """Finish a single training."""
    left = remaining([launch], settings)
    where = launch.shown_directory
    for _, process in left.alive:
        raise MatrixError(f"{where} still runs, as {process}", hint="wait for its end, or stop it first")
    for _, reason in left.left:
        say(f"{where} would only fail again: {reason}")
        say(f"hint: to try it all the same: {typed('test_rerun', where, 'TARGET')}")
        return EXIT_FAILED
    adopted = left.adopted[0][1] if left.adopted else None
    if adopted is not None:
        say(f"taken over: {where}, which the scheduler runs or has in its queue")
    if adopted is None and not left.launches:
        say(f"{where} is complete")
        return 0
    run = on_cluster(left.launches[0] if left.launches else launch, settings)
    if adopted is None:
        refuse_unrunnable([run], settings)
        bring_for([run.asked])
        say(f"run: {where}")
        if queue := queue_line(settings):
            say(f"  {queue}")

    def complete() -> list[str]:
        return [*page(run.directory), *next_lines(run, None, launcher_words(settings))]

    return supervise_single(run, root=root, settings=settings, adopted=adopted, complete=complete)


def _introduce(found: SelectedRuns, left: Remaining) -> None:
    """Print what will run, and which incomplete runs will not."""
    where = shown(found.directory)
    total = len(found.launches)
    runs = counted(total, "run")
    if left.launches:
        say(f"matrix: {len(left.launches)} of {runs} left in {where}")
    elif left.adopted:
        say(f"matrix: {runs} in {where}")
    elif len(left.complete) == total:
        say(f"matrix: complete: {runs} in {where}")
    else:
        say(f"matrix: nothing is left to run of {runs} in {where}")
    _tell_left(found, left)


def _tell_time(
    found: SelectedRuns,
    plan: Plan,
    left: Remaining,
    settings: Mapping[str, object],
    expected: Mapping[str, float],
    *,
    more: int = 0,
) -> None:
    """Print how long what is left takes; of runs in the hands of a scheduler nothing is left to say."""
    if not left.launches and not more:
        return
    if queue := queue_line(settings):
        say(f"  {queue}")
    jobs = num_jobs(settings)
    seconds = seconds_to_go(found, left.launches, {} if plan.template else expected, jobs=jobs, more=more)
    for line in time_lines(plan, left.launches, settings, expected, jobs=jobs, begun=True, left=seconds):
        say(line)


def _tell_left(found: SelectedRuns, left: Remaining) -> None:
    """The cells that are not complete and are not run either."""
    if left.adopted:
        adopted = counted(len(left.adopted), "run")
        say(f"taken over: {adopted} that the scheduler runs or has in its queue")
    for name, reason in left.left:
        say(f"left: {name} would only fail again: {reason}")
    if left.left:
        say(f"hint: to try them all the same: {typed('test_rerun', shown(found.directory), 'TARGET')}")
    for name, process in left.alive:
        say(f"left: {name} still runs without its runner, as {process}")
