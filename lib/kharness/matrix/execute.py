"""One run from its launch to the verdict: stop it, and judge what it left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kharness.matrix.journal_tail import JournalTail
from kharness.matrix.launch import Launch, Launcher, Slot
from kharness.matrix.status import Attempt, RunStatus, Status, write_status

# A training exits with this after it was asked to stop and has saved everything (EX_TEMPFAIL of sysexits.h).
STOPPED_ON_REQUEST = 75

# Filled in when a run starts, so what the trainer records differs from the template that was asked for.
EXPANDED = frozenset({"TRACKER_PROJECT", "TRACKER_RUN_NAME"})


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: Status
    attempt: Attempt

    @property
    def seconds(self) -> float:
        assert self.attempt.ended is not None
        return self.attempt.ended - self.attempt.started


class ActiveRun:
    """A run that was launched and has not ended yet, with its status.json kept."""

    def __init__(self, launch: Launch, launcher: Launcher, slot: Slot) -> None:
        self.launch = launch
        self.slot = slot
        self.tail = JournalTail(launch.directory)
        self._launcher = launcher
        self._stop_asked = False
        self.job = launcher.submit(launch, slot)
        self._attempt = Attempt(started=self.job.started, pid=self.job.pid)
        write_status(launch.directory, RunStatus("running", [self._attempt]))

    @property
    def started(self) -> float:
        """UTC epoch seconds."""
        return self.job.started

    def poll(self) -> Outcome | None:
        """The outcome once the run has ended, also written to status.json."""
        found = self._launcher.poll(self.job)
        if found is None:
            return None
        self.tail.update()
        ended = replace(self._attempt, ended=found.ended, exit_code=found.exit_code, signal=found.signal)
        status, reason = judge(ended, self.tail, self.launch.asked, stop_asked=self._stop_asked)
        outcome = Outcome(status, replace(ended, reason=reason))
        write_status(self.launch.directory, RunStatus(status, [outcome.attempt]))
        return outcome

    def stop(self) -> None:
        """Ask the training to stop after its current step."""
        self._stop_asked = True
        self._launcher.cancel(self.job, kill=False)

    def kill(self) -> None:
        """End it at once, with everything it started except its agent."""
        self._launcher.cancel(self.job, kill=True)


def judge(
    attempt: Attempt, tail: JournalTail, asked: Mapping[str, object], *, stop_asked: bool
) -> tuple[Status, str | None]:
    """Status and reason of a process that has ended, from its exit and its journal.

    Exit code 0 is not enough: the journal must say that the training is complete and that it ran with the
    values that were asked for.
    """
    ended_as = tail.end.get("status")
    if attempt.exit_code == 0:
        if ended_as != "complete":
            says = f"says {ended_as}" if tail.end else "is missing"
            return "failed", f"exit code 0, but the journal's end record {says}"
        different = other_values(tail.start.get("config"), asked)
        if different:
            return "failed", f"ran with other values than asked: {different}"
        return "complete", None
    if stop_asked or attempt.exit_code == STOPPED_ON_REQUEST:
        if ended_as == "interrupted":
            return "interrupted", f"stopped on request after step {tail.step or 0}"
        if attempt.signal == signal.SIGKILL:
            return "killed", f"killed after step {tail.step or 0}, before it had stopped"
        return "interrupted", f"stopped on request after step {tail.step or 0}, without an end record"
    if attempt.signal is not None:
        return "killed", f"signal {attempt.signal} ({_signal_name(attempt.signal)})"
    error = tail.end.get("error")
    return "failed", f"exit code {attempt.exit_code}" + (f": {error}" if error else "")


def other_values(recorded: object, asked: Mapping[str, object]) -> str:
    """The symbols in which the start record's configuration differs from what was asked; empty if none."""
    if not isinstance(recorded, Mapping):
        return "the start record holds no configuration"
    names = [name for name in asked if name not in EXPANDED]
    different = [
        f"{name}={recorded[name]!r}, asked {asked[name]!r}" if name in recorded else f"{name} is not recorded"
        for name in names
        if name not in recorded or not _same(recorded[name], asked[name])
    ]
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return "; ".join(different[:3]) + more


def output_tail(log: Path, lines: int = 15) -> list[str]:
    """The last lines of a log, fit for a terminal."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 20_000))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    # A progress bar writes its states one over the other; only the last one was meant to stay.
    last = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    kept = [line for line in last if line][-lines:]
    return ["".join(c if c.isprintable() or c == "\t" else "?" for c in line)[:300] for line in kept]


def _same(recorded: object, asked: object) -> bool:
    # In JSON 1e3 comes back as 1000.0 and a tuple as a list; True and 1 are still two things.
    return recorded == asked and isinstance(recorded, bool) == isinstance(asked, bool)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unnamed"
