"""Wait at the end of a matrix, up to a limit, until the trackers hold all records of its runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kharness.config.make.typed import typed
from kharness.config.writing import guarded
from kharness.matrix.running.in_child import Say
from kharness.matrix.running.signals import Signals
from monitoring.agent.follow import undelivered
from monitoring.agent.lock import death, has_died, is_coming, is_followed
from monitoring.agent.progress import read_progress
from monitoring.alert_sentences import alert_lines
from monitoring.counts import counted
from monitoring.errors import MonitoringError
from monitoring.follower import upload_commands
from monitoring.journal.files import RUN_JSON
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
            say(f"waiting up to {patience:.0f} s for the trackers to take the last points")
        signals.wait(0.1)
    # Asked again of all: an agent that died no longer holds its lock, and looks as if it had finished.
    return {directory: lacking for directory in followed if (lacking := undelivered(directory))}


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


def _kept_lines(name: str, commands: Sequence[str]) -> list[str]:
    if len(commands) == 1:  # the training has printed the command
        return [f"{name}: all points on this disk, not uploaded"]
    runs = f"{name}: all points of {counted(len(commands), 'run')} on this disk, not uploaded"
    return [f"{runs}; to upload the first: {commands[0]}"]


def delivery_lines(
    directories: Sequence[Path], lacking: Mapping[Path, Mapping[str, int]], root: Path
) -> list[str]:
    """Return lines on the delivery of these runs after the wait, where `lacking` has the records missing per
    follower.
    """
    if not lacking:
        names = {name for directory in directories for name in read_progress(directory)}
        kept = _kept_here(directories)
        sent = sorted(names - kept.keys())
        delivered = [f"{', '.join(sent)}: all points delivered"] if sent else []
        return [*delivered, *(line for name in sorted(kept) for line in _kept_lines(name, kept[name]))]
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
    """Wait for the trackers; then what they lack, and the alerts. What fails there costs no report."""
    lines: list[str] = []

    def warn(line: str) -> None:
        lines.append(f"warning: {line}")

    def delivered() -> list[str]:
        return delivery_lines(started, wait_for_delivery(started, signals, say, patience=patience), root)

    none: list[str] = []
    told = guarded("delivery", delivered, none, warn)
    return [*told, *guarded("alerts", lambda: alert_lines(started, since=since), none, warn), *lines]
