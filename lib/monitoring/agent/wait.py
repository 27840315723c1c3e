"""Waits for the agent of a run, and prints meanwhile how far its followers are."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from monitoring.agent.follow import HANGING_AFTER, newest_seqs, undelivered
from monitoring.agent.lock import is_followed
from monitoring.agent.progress import read_progress
from monitoring.counts import counted
from monitoring.errors import RunBusyError
from monitoring.host.name import host_name
from monitoring.host.process import is_alive
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import last_record
from monitoring.journal.run_json import read_run_json

# Seconds between looks at the agent, and between two lines about it.
LOOK_EVERY = 0.2
SAY_EVERY = 5.0

# Seconds without any progress: while the training runs, whose agent may retry for ever, and after that,
# when an agent that works gives up by itself (HANGING_AFTER).
PATIENCE = 60.0
LAST_PATIENCE = HANGING_AFTER + PATIENCE


def wait_for_agent(directory: Path, say: Callable[[str], None], *, to_its_end: bool) -> bool:
    """Return True once no agent follows the run.

    Unless `to_its_end`, False as soon as a running training has everything delivered that it had
    recorded when this began: its agent sees to the rest. RunBusyError where the agent gets no further: its
    tracker does not answer, or it does not itself. Only a training that runs is waited for without a limit.
    """
    said, next_line, newest = "", 0.0, newest_seqs(directory)
    seen: object = None
    moved = time.monotonic()
    while is_followed(directory):
        lacking = undelivered(directory)
        running = is_training(directory)
        if running and not to_its_end and not undelivered(directory, newest):
            return False
        now = time.monotonic()
        line = _story(directory, lacking, running=running)
        if (state := (running, undelivered(directory, newest))) != seen or (running and to_its_end):
            seen, moved = state, now
        if now - moved > (PATIENCE if running else LAST_PATIENCE):
            raise RunBusyError(
                f"its agent gets no further: {line.removeprefix('waiting for its agent: ')}",
                hint="the tracker's server may be down; sync again when it is up, or the training has ended",
            )
        if now >= next_line and line != said:
            say(line)
            said, next_line = line, now + SAY_EVERY
        time.sleep(LOOK_EVERY)
    return True


def is_training(directory: Path) -> bool:
    """Whether the newest attempt of a run is still running; one on another host is until its journal ends."""
    attempt = read_run_json(directory)["attempts"][-1]
    last = last_record(directory / JOURNAL) or {}
    if last.get("event") == "end" and last.get("attempt") == attempt["attempt"]:
        return False
    return attempt["host"] != host_name() or is_alive(attempt)


def _story(directory: Path, lacking: dict[str, int], *, running: bool) -> str:
    errors = {name: progress.error for name, progress in read_progress(directory).items() if progress.error}
    parts = [
        f"{name} lacks {counted(count, 'record')}" + (f" ({errors[name]})" if name in errors else "")
        for name, count in lacking.items()
    ]
    if not parts:
        parts = ["it is still training" if running else "everything is delivered, trackers are being closed"]
    return "waiting for its agent: " + ", ".join(parts)
