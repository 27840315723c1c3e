"""One attempt at a run: launch it, follow it, stop it, and record its end in status.json."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kharness.runs.causes import Stop, judge
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import DISK_FULL, ERROR
from kharness.runs.files import OUTPUT_LOG, STATUS_JSON
from kharness.runs.journal_tail import JournalTail, journal_end
from kharness.runs.launch import FROM_SCRATCH, Exit, Job, Launch, Launcher, Slot
from kharness.runs.status import FAILED, RUNNING, Attempt, RunStatus, Status, read_status, write_status
from monitoring.errors import is_full
from monitoring.host.other_work import MachineWork, other_work
from monitoring.journal.files import JOURNAL
from monitoring.journal.run_state import RunState, read_end

# Seconds. The end of a run and the start of the next one are the same moment.
AT_ONCE = 0.02


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended."""

    status: Status
    attempt: Attempt

    @property
    def seconds(self) -> float:
        assert self.attempt.ended is not None
        return max(0.0, self.attempt.ended - self.attempt.started)  # the clock may have been set back


class NotStarted(MatrixError):
    """A run that could not be launched."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


class ActiveRun:
    """A run that was launched and has not ended yet."""

    def __init__(
        self, launch: Launch, launcher: Launcher, slot: Slot, machine: MachineWork | None = None
    ) -> None:
        """Launch it; NotStarted if that cannot be done, which is then in its status.json too.

        `machine` measures what else the machine does, where the runs are processes of it.
        """
        self.launch = launch
        self.slot = slot
        offset = journal_end(launch.directory)
        self._journal = JournalTail(launch.directory, since=offset)
        self.state: RunState = self._journal
        """State of the run from its journal so far."""
        self.stop_asked: Stop | None = None
        self.kill_asked = False
        self._unwritten: RunStatus | None = None
        self._launcher = launcher
        self._stop_asked_at = 0.0
        self._log = launch.directory / OUTPUT_LOG
        self._log_begins = self._log.stat().st_size if self._log.exists() else 0
        self._before = earlier_attempts(launch.directory)
        self._attempt = Attempt(
            started=time.time(),
            pid=None,
            slot=_as_json(slot),
            arguments=tuple(launch.arguments),
            journal_offset=offset,
        )
        try:
            # Before there is a process: should this one be killed in between, the attempt is not forgotten.
            self._write(RunStatus(RUNNING, [*self._before, self._attempt]))
            self.job: Job = launcher.submit(launch, slot)
        except (MatrixError, OSError) as error:
            raise self._not_started(error) from error
        # Not before: the first launch waits until the launcher is ready, which is nothing of the run's time.
        self._begun = time.monotonic()
        # Only local processes can be distinguished from other work.
        self._machine = machine if machine is not None and launcher.name == "local" else None
        self._work_before = self._machine.read(newest=AT_ONCE) if self._machine else None
        self._attempt = replace(
            self._attempt, started=self.job.started, pid=self.job.pid, job=_as_json(self.job)
        )
        with contextlib.suppress(OSError):  # a full disk: what counts is the status at the end
            self._write(RunStatus(RUNNING, [*self._before, self._attempt]))

    @property
    def number(self) -> int:
        """Number of this attempt, counted from 1 over all runners."""
        return len(self._before) + 1

    @property
    def started(self) -> float:
        """UTC epoch seconds."""
        return self.job.started

    @property
    def seconds(self) -> float:
        """Since its launch."""
        return time.monotonic() - self._begun

    @property
    def seconds_since_stop(self) -> float:
        """Since it was requested to stop; 0 if it was not."""
        return time.monotonic() - self._stop_asked_at if self.stop_asked else 0.0

    def read(self) -> None:
        """Take in what is new in its journal."""
        self._journal.read()

    def poll(self) -> Outcome | None:
        """The outcome once the run has ended, also written to status.json."""
        found = self._launcher.poll(self.job)
        return None if found is None else self._ended(found)

    def stop(self, stop: Stop) -> None:
        """Ask the training to save and stop after its current step."""
        self.stop_asked = stop
        self._stop_asked_at = time.monotonic()
        self._launcher.cancel(self.job, kill=False)

    def kill(self) -> None:
        """End it at once, with everything it started except its agent."""
        self.kill_asked = True
        self._launcher.cancel(self.job, kill=True)

    def output_tail(self, lines: int = 15) -> list[str]:
        """The last lines that this attempt printed."""
        return output_tail(self._log, lines, since=self._log_begins)

    def _ended(self, found: Exit) -> Outcome:
        # The process has ended, so its journal is complete: judged before this read, an end record still to
        # be read would be missed.
        self.read()
        if found.exit_code == 0 and not self.state.start and FROM_SCRATCH not in self.launch.arguments:
            # It found that an earlier attempt was complete, and did nothing.
            self.state = read_end(self.launch.directory / JOURNAL)
        verdict = judge(
            found, self.state, self.launch.asked, stop=self.stop_asked, output=self.output_tail(100)
        )
        work = self._machine.read(newest=AT_ONCE) if self._machine else None
        attempt = replace(
            self._attempt,
            ended=found.ended,
            other_work=other_work(self._work_before, work),
            exit_code=found.exit_code,
            signal=found.signal,
            cause=verdict.cause,
            reason=verdict.reason,
        )
        # Kept until it is on disk, as the only record of how the attempt ended.
        self._unwritten = RunStatus(verdict.status, [*self._before, attempt])
        self.write_end()
        return Outcome(verdict.status, attempt)

    def write_end(self) -> bool:
        """Write how it ended, if a full disk has not let that happen yet; returns whether it is written."""
        if self._unwritten is not None:
            try:
                write_status(self.launch.directory, self._unwritten)
            except OSError:
                return False
            self._unwritten = None
        return True

    def _not_started(self, error: MatrixError | OSError) -> NotStarted:
        full = isinstance(error, OSError) and is_full(error)
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"{self.launch.name} cannot be started: {(error.strerror or reason).lower()}"
        attempt = replace(self._attempt, ended=time.time(), cause=DISK_FULL if full else ERROR, reason=reason)
        with contextlib.suppress(OSError):
            self._write(RunStatus(FAILED, [*self._before, attempt]))
        return NotStarted(reason, Outcome(FAILED, attempt))

    def _write(self, status: RunStatus) -> None:
        # What a loss of power may take: then the attempt before it is the last that is known.
        write_status(self.launch.directory, status, durable=False)


def earlier_attempts(directory: Path) -> list[Attempt]:
    """Those that status.json holds; none if there is no such file yet."""
    return list(read_status(directory).attempts) if (directory / STATUS_JSON).exists() else []


def output_tail(log: Path, lines: int = 15, *, since: int = 0) -> list[str]:
    """The last lines of a log from byte `since` on, fit for a terminal."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(min(size, max(since, size - 20_000)))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    # A progress bar writes its states one over the other; only the last one was meant to stay.
    last = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    kept = [line for line in last if line][-lines:]
    return ["".join(c if c.isprintable() or c == "\t" else "?" for c in line)[:300] for line in kept]


def _as_json(value: Job | Slot) -> Mapping[str, Any]:
    return asdict(value)
