"""Run a single training from its launch to its exit code: shared by train, run, continue and test-rerun."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path

from kharness.config.config_py import read_values
from kharness.config.make.typed import typed, typed_comparison, typed_make, typed_setting
from kharness.config.output import said_if_slow, say
from kharness.config.places import CONFIG_PY
from kharness.matrix.launchers import STARTS_NO_SERVERS, Guarded, open_launcher, schedules
from kharness.matrix.running.execute import Outcome
from kharness.matrix.running.runner import Detached, Limits, Runner, run_one
from kharness.matrix.running.signals import Signals
from kharness.runs.command import CommandLaunch
from kharness.runs.exit_codes import EXIT_FAILED, EXIT_STOPPED, REFUSED
from kharness.runs.files import LATEST, RENDERED
from kharness.runs.latest import shown
from kharness.runs.launch import Launch
from kharness.runs.rundir import has_plan
from kharness.runs.seeds_of_run import matrix_of_program, seeds_of_run, with_seed
from kharness.runs.status import COMPLETE, INTERRUPTED, KILLED, TIMEOUT, RunStatus
from monitoring.counts import counted
from monitoring.errors import command_lines
from monitoring.host.steady_clock import SteadyClock

# Seconds. A single run's agent continues by itself in the background, so there is no need to wait for long.
SINGLE_PATIENCE = 10.0


def supervise_single(
    launch: Launch,
    *,
    root: Path,
    settings: Mapping[str, object] = {},
    adopted: RunStatus | None = None,
    complete: Callable[[], Sequence[str]] = list,
    launcher: Guarded | None = None,
    signals: Signals | None = None,
) -> int:
    """Run a single training, its output passed on; its own exit code, 3 if it claims a success that is none.

    75 where it was stopped, wherever it was then; 128 + n after signal n. The caller holds the RunnerLock of
    its directory. By `settings` it is a job of a scheduler; `adopted` is the status of one that is already.
    Lines of `complete` are printed at the end of one that is complete. `launcher` is another
    than the configured one, which has begun the run of `adopted`; `signals` have been counted since then.
    """
    clock = SteadyClock()
    with nullcontext(signals) if signals else Signals() as signals:
        try:
            outcome = _outcome_of_single(launch, signals, settings, adopted, launcher)
        except Detached as left:
            tell_detached(launch.directory, left)
            return 0
        from kharness.matrix.running.delivery import told_lines  # the program does not wait for it

        told = told_lines(
            [launch.directory], signals, say, root, since=clock.earliest(), patience=SINGLE_PATIENCE
        )
    # A training that is refused has said why.
    if outcome.status != COMPLETE and outcome.attempt.cause != REFUSED:
        print(f"{outcome.status}: {outcome.attempt.reason}", file=sys.stderr)
    if outcome.status in (INTERRUPTED, KILLED, TIMEOUT):
        say(f"resume with: {typed('continue', launch.shown_directory)}")
    for line in told:
        say(line)
    if outcome.status == COMPLETE:
        with said_if_slow("writing its page"):
            lines = complete()
        for line in lines:
            say(line)
    return _exit_code(outcome)


def _outcome_of_single(
    launch: Launch,
    signals: Signals,
    settings: Mapping[str, object],
    adopted: RunStatus | None,
    own: Guarded | None,
) -> Outcome:
    if not schedules(settings):
        # For one run there is nothing to share, so that a process of its own starts sooner.
        with closing(own or open_launcher("local", STARTS_NO_SERVERS, say)) as launcher:
            return run_one(launch, launcher, signals, sys.stdout, begun=adopted)
    from kharness.matrix.machine.resources import Elsewhere
    from kharness.matrix.running.printed_run import PrintedJob, PrintedRun
    from kharness.matrix.running.protocols import Queue

    with (
        PrintedRun(launch.directory, sys.stdout, signals=signals) as view,
        closing(open_launcher(str(settings["LAUNCHER"]), settings, view.say)) as launcher,
    ):
        outcomes = Runner(
            Queue([] if adopted else [launch]),
            launcher,
            Elsewhere(),
            signals,
            PrintedJob(view),
            limits=Limits(detach=bool(settings.get("MATRIX_DETACH", False))),
            adopted=[(launch, adopted)] if adopted else [],
        ).run()
    return outcomes[launch.name]


def next_lines(launch: Launch, before: Path | None, launched: Mapping[str, Sequence[str]] = {}) -> list[str]:
    """Return the suggested next commands after a training; `before` is the run or matrix that was the newest
    then, `launched` the options of a program's launcher.
    """
    # The short name, results/latest, while it is this run's.
    link = launch.directory.parent / LATEST
    run = shown(link) if link.resolve() == launch.directory.resolve() else launch.shown_directory
    commands = {typed("report", run): "its graphs and tables as files"}
    if isinstance(launch, CommandLaunch):
        commands |= _seeds_of_program(launch, launched)
    elif before is not None and _is_comparable(before, launch.model):
        commands[typed_comparison(shown(before), run)] = "which is better, it or the run before"
    else:
        commands[seeds_of_run(launch.directory, 5)] = "several seeds, which show how far they spread"
    if launch.asked.get("ENABLE_TRACKIO"):
        # .config may be of another model, or lie elsewhere (O=): then the project is another, too.
        project = f"CONFIG_TRACKER_PROJECT={read_values(launch.directory / CONFIG_PY)['TRACKER_PROJECT']}"
        commands[typed_make(shlex.join(["trackio-view", project]))] = "its dashboard"
    return [line for command, what in commands.items() for line in _next(what, command)]


def _next(what: str, command: str) -> list[str]:
    """The command has lines of its own: behind a `#` not every shell takes the rest for a comment."""
    return [f"next: {what}:", *command_lines(f"  {command}", 0)]


def _seeds_of_program(launch: CommandLaunch, options: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the command that runs a program by several seeds, in its folder and with these options too."""
    command, root = launch.of, Path(launch.of.cwd)
    if not root.is_dir():
        return {}
    template, results = {**asdict(command), **command.template}, launch.directory.parent
    words, takes_seed = with_seed(template["words"])
    project = command.project if command.project != root.name else ""
    rendered = sorted(map(str, (launch.directory / RENDERED).glob("*")))
    typed_there = {
        "--results": [str(results)] if results != root / "results" else [],
        **options,
    }
    again = matrix_of_program(
        {**template, "words": words, "project": project, "files": {}, "render": rendered},
        [],
        "1..5",
        typed_there,
    )
    if root != Path.cwd():
        again = f"cd {shlex.quote(str(root))} && {again}"
    return {
        again: f"several seeds{'' if takes_seed else ' (if it takes --seed)'}, which show how far they spread"
    }


def _is_comparable(run: Path, model: str) -> bool:
    """Whether it is a complete single training of the model."""
    from kharness.config.config_py import read_values
    from kharness.config.places import CONFIG_PY
    from kharness.runs.standing import is_missing

    if has_plan(run) or is_missing(run):
        return False
    return read_values(run / CONFIG_PY).get("MODEL") == model


def tell_detached(directory: Path, left: Detached) -> None:
    """Print how to watch a run that a scheduler continues."""
    run = shown(directory)
    us = typed_setting("make", "kharness")
    say(f"detached: the scheduler has {counted(len(left.names), 'run')}, and goes on without {us}")
    for line in [
        *_next("how far it is", typed("status", run)),
        *_next("watch on, and report at the end", typed("continue", run)),
    ]:
        say(line)


def _exit_code(outcome: Outcome) -> int:
    if outcome.status == COMPLETE:
        return 0
    if outcome.status == INTERRUPTED:
        return EXIT_STOPPED
    if outcome.attempt.signal is not None:
        return 128 + outcome.attempt.signal
    return outcome.attempt.exit_code or EXIT_FAILED
