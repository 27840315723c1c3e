"""The end of a matrix: wait, up to a limit, until trackers hold all records; its report in a forked child."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from kharness.config.make.typed import typed, typed_target
from kharness.config.writing import guarded
from kharness.matrix.running.signals import Signals
from kharness.runs.command import read_command
from kharness.runs.errors import MatrixError
from monitoring.agent.follow import undelivered
from monitoring.agent.lock import death, has_died, is_coming, is_followed
from monitoring.agent.progress import read_progress
from monitoring.alert_sentences import alert_lines
from monitoring.counts import counted
from monitoring.errors import MonitoringError
from monitoring.follower import ALWAYS, upload_commands
from monitoring.host import libc
from monitoring.journal.files import METRICS_CSV, RUN_JSON
from monitoring.journal.run_json import read_run_json

# Seconds after its trainer's end in which an agent may still come, where the file system does not show that
# one does: it starts with the run, but a short training may end before its agent has imported what it needs.
AGENT_GRACE = 3.0
PATIENCE = 60.0


def wait_for_delivery(
    directories: Sequence[Path],
    signals: Signals,
    say: Callable[[str], None],
    *,
    patience: float = PATIENCE,
) -> dict[Path, dict[str, int]]:
    """Wait for the agents of the runs, at most `patience` seconds or until a signal asks to stop.

    Returns the runs of which a follower still lacks records, with how many; says once that it waits.
    """
    begun = time.monotonic()
    stops = len(signals.stops)
    waiting = followed = [directory for directory in directories if _is_run(directory, say)]
    said = False
    while waiting:
        elapsed = time.monotonic() - begun
        waiting = [
            directory
            for directory in waiting
            # in this order: an agent takes the one lock before it lets go of the other
            if is_coming(directory)
            or is_followed(directory)
            or (elapsed < AGENT_GRACE and undelivered(directory))
        ]
        # A second request to stop ends the wait: nothing is lost, `make sync` delivers the rest later.
        if not waiting or elapsed > patience or len(signals.stops) > stops:
            break
        if not said and elapsed > 1:
            said = True
            say(f"waiting up to {patience:.0f} s for {_takers(waiting)} to take the last points")
        signals.wait(0.1)
    # Asked again of all: an agent that died no longer holds its lock, and looks as if it had finished.
    return {directory: lacking for directory in followed if (lacking := undelivered(directory))}


def _takers(directories: Sequence[Path]) -> str:
    """Return who takes the records of these runs; without trackers the CSV and the rules do."""
    tracked = any(read_run_json(directory)["tracking"]["trackers"] for directory in directories)
    return "the trackers" if tracked else f"{METRICS_CSV} and the alerts"


def _is_run(directory: Path, say: Callable[[str], None]) -> bool:
    """Whether a trainer ever opened a journal here; a broken run.json is reported and skipped."""
    if not (directory / RUN_JSON).exists():
        return False
    try:
        read_run_json(directory)
    except MonitoringError as error:
        say(f"warning: {error}")
        return False
    return True


def _kept_here(directories: Sequence[Path]) -> Mapping[str, Sequence[str]]:
    """Return the commands that upload what a tracker keeps of these runs on this disk, by tracker."""
    found: dict[str, list[str]] = {}
    for directory in directories:
        with contextlib.suppress(MonitoringError):
            for name, command in (upload_commands(directory) if read_progress(directory) else {}).items():
                found.setdefault(name, []).append(command)
    return found


def _kept_line(name: str, commands: Sequence[str], *, is_told: bool) -> str:
    """`is_told` says whether the training has printed the command."""
    several = len(commands) > 1
    whose = f" of {counted(len(commands), 'run')}" if several else ""
    upload = f"; to upload {'the first' if several else 'them'}:\n  {commands[0]}"
    return f"{name}: all points{whose} on this disk, not uploaded{'' if is_told else upload}"


def delivery_lines(
    directories: Sequence[Path], lacking: Mapping[Path, Mapping[str, int]], root: Path
) -> list[str]:
    """Return lines on the delivery of these runs after the wait, where `lacking` has the records missing per
    follower.
    """
    if not lacking:
        names = {name for directory in directories for name in read_progress(directory)}
        kept = _kept_here(directories)
        sent = sorted(names - kept.keys() - {*ALWAYS})  # nobody has asked for those
        delivered = [f"{', '.join(sent)}: all points delivered"] if sent else []
        is_told = len(directories) == 1 and read_command(directories[0]) is None
        return [*delivered, *(_kept_line(name, kept[name], is_told=is_told) for name in sorted(kept))]
    lines = []
    for directory, followers in lacking.items():
        shown = directory.relative_to(root) if directory.is_relative_to(root) else directory
        counts = ", ".join(f"{name} lacks {counted(count, 'record')}" for name, count in followers.items())
        died = f"; {death()}" if has_died(directory) else ""
        lines.append(f"warning: {shown}: {counts}{died}; later: {typed('sync', shown)}")
    return lines


def told_lines(
    started: Sequence[Path],
    signals: Signals,
    say: Say,
    root: Path,
    *,
    since: float,
    patience: float = PATIENCE,
) -> list[str]:
    """Wait for the trackers; return what they lack, and alerts. A failure here costs no report."""
    lines: list[str] = []

    def warn(line: str) -> None:
        lines.append(f"warning: {line}")

    def delivered() -> list[str]:
        return delivery_lines(started, wait_for_delivery(started, signals, say, patience=patience), root)

    none: list[str] = []
    told = guarded("delivery", delivered, none, warn)
    return [*told, *guarded("alerts", lambda: alert_lines(started, since=since), none, warn), *lines]


Result = TypeVar("Result")
Say = Callable[[str], None]
"""Prints a line, or several."""


def apart(work: Callable[[Say], Result], say: Say) -> Result:
    """Return or raise the outcome of `work`, run in a fork of this process, which must have no other thread.

    `work` gets a function whose text arrives at `say` in this process immediately. It dies with this process.
    """
    # or what waits in the buffers would be printed by both processes
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    end_with_parent = libc.ending_with(os.getpid())
    child = os.fork()
    if child == 0:
        end_with_parent()
        os.close(reader)
        _answer(work, writer)
    # a pipe ends when the last process has closed its other side: this one must not be it (pipe(7))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        kind, value = _listen(pipe, say)
    _, status = os.waitpid(child, 0)
    if kind == "raised":
        raise value  # type: ignore[misc]
    if kind != "returned":
        code = os.waitstatus_to_exitcode(status)
        raise MatrixError(
            f"the report ended with exit code {code}", hint=f"write it again: {typed_target('summary')}"
        )
    result: Result = value  # type: ignore[assignment]
    return result


def _listen(pipe: BinaryIO, say: Say) -> tuple[str, object]:
    """The child's last message; an empty one if it died before that."""
    while True:
        try:
            kind, value = pickle.load(pipe)
        except (EOFError, pickle.UnpicklingError):
            return "", None
        if kind != "said":
            return kind, value
        say(value)


def _answer(work: Callable[[Say], object], writer: int) -> None:
    """Does not return: the code after it is the parent's."""
    code = 1
    try:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            try:
                answer = "returned", work(lambda text: _send(pipe, ("said", text)))
            except Exception as error:  # noqa: BLE001 - the parent raises it
                error.add_note(traceback.format_exc())  # which a pickle does not keep
                answer = "raised", error
            _send(pipe, answer)
        sys.stdout.flush()
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        # not sys.exit: what the parent does at its exit, as deleting its temporary files, is not the child's
        os._exit(code)


def _send(pipe: BinaryIO, message: tuple[str, object]) -> None:
    left = memoryview(pickle.dumps(message))
    while left:  # unbuffered, a write may take a part only
        left = left[pipe.write(left) :]
