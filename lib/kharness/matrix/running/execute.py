"""One attempt at a run: launch it, follow it, stop it, and record its end in status.json."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kharness.matrix.launchers import Guarded
from kharness.runs.causes import Stop, judge
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import DISK_FULL, ERROR
from kharness.runs.files import OUTPUT_LOG, STATUS_JSON
from kharness.runs.launch import FROM_SCRATCH, Exit, Job, JobState, Launch, Slot
from kharness.runs.status import (
    FAILED,
    QUEUED,
    RUNNING,
    Attempt,
    RunStatus,
    Status,
    read_status,
    write_status,
)
from monitoring.errors import is_full
from monitoring.host.other_work import MachineWork, other_work
from monitoring.journal.atomic_file import has_room
from monitoring.journal.files import JOURNAL

if TYPE_CHECKING:  # what reads journals is imported once a run is started, which does not wait for it
    from kharness.runs.journal_tail import JournalTail
    from monitoring.journal.run_state import RunState

# Seconds. The end of a run and the start of the next one are the same moment.
AT_ONCE = 0.02


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended."""

    status: Status
    attempt: Attempt
    by_scheduler: bool = False
    """Whether it was ended though the runner had not asked for it."""

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
        self,
        launch: Launch,
        launcher: Guarded,
        slot: Slot,
        machine: MachineWork | None = None,
        *,
        adopted: RunStatus | None = None,
    ) -> None:
        """Launch it; NotStarted if that cannot be done, which is then in its status.json too.

        `machine` measures what else the machine does, where the runs are processes of it. `adopted` is the
        status of one whose job is in the hands of a scheduler already, or whose process was begun earlier.
        """
        self.launch = launch
        self.slot = slot
        self.state: RunState
        """State of the run from its journal so far."""
        self.stop_asked: Stop | None = None
        self.kill_asked = False
        self._unwritten: RunStatus | None = None
        self._launcher = launcher
        self._scheduler = launcher if launcher.schedules else None
        self._job_state: JobState | None = None
        self._closed: list[Attempt] = []
        """Those of the same job before this one: a scheduler has started it again."""
        self._stop_asked_at = 0.0
        log = launch.directory / OUTPUT_LOG
        self._log_begins = log.stat().st_size if log.exists() else 0
        self._machine: MachineWork | None = None
        self._work_before = None
        if adopted is not None and self._scheduler is not None:
            from kharness.runs.jobs.job_status import split

            self._before, self._attempt = split(adopted)
            self._submitted = self._attempt
            self.job: Job = Job(**(self._attempt.job or {}))
            self._begun = time.monotonic()
            self._scheduler.adopt(launch, self.job)
            self._read_from(end_of_journal(launch.directory))
            self._follow()
            return
        if adopted is not None:
            *self._before, self._attempt = adopted.attempts
            self._log_begins = 0  # its first attempt
            self.job = Job(**(self._attempt.job or {}))
        else:
            self._submit()
        self._submitted = self._attempt
        self._read_from(self._attempt.journal_offset)
        # Not before: the first launch waits until the launcher is ready, which is nothing of the run's time.
        self._begun = time.monotonic()
        # Only local processes can be distinguished from other work.
        self._machine = machine if machine is not None and launcher.name == "local" else None
        self._work_before = self._machine.read(newest=AT_ONCE) if self._machine else None

    def _submit(self) -> None:
        """Have the launcher start it; NotStarted if it cannot."""
        has_status = (self.launch.directory / STATUS_JSON).exists()
        self._before = list(read_status(self.launch.directory).attempts) if has_status else []
        self._attempt = Attempt(
            started=time.time(),
            pid=None,
            slot=_as_json(self.slot),
            arguments=tuple(self.launch.arguments),
            journal_offset=end_of_journal(self.launch.directory),
            output_offset=self._log_begins,
        )
        try:
            # Before there is a process: should this one be killed in between, the attempt is not forgotten.
            if self._scheduler is None:
                self._write(RunStatus(RUNNING, [*self._before, self._attempt]))
            self.job = self._launcher.submit(self.launch, self.slot)
        except (MatrixError, OSError) as error:
            raise self._not_started(error) from error
        self._attempt = replace(
            self._attempt, started=self.job.started, pid=self.job.pid, job=_as_json(self.job)
        )
        with contextlib.suppress(OSError):  # a full disk: what counts is the status at the end
            # A scheduler gets the job only with the next `flush`: by then its id is written.
            status: Status = RUNNING if self._scheduler is None else QUEUED
            self._write(RunStatus(status, [*self._before, self._attempt]))

    @property
    def number(self) -> int:
        """Number of this attempt, counted from 1 over all runners."""
        return len(self._before) + len(self._closed) + 1

    @property
    def started(self) -> float:
        """UTC epoch seconds."""
        return self._attempt.started

    @property
    def seconds(self) -> float:
        """Since its launch; 0 while it waits in a queue."""
        return 0.0 if self.waits else time.monotonic() - self._begun

    @property
    def waits(self) -> bool:
        """Whether it is in the queue of a scheduler."""
        return self._scheduler is not None and (self._job_state is None or self._job_state.waits)

    @property
    def waiting(self) -> str:
        """Return the scheduler's last reason for waiting; empty if unknown."""
        return self._job_state.waiting if self._job_state else ""

    @property
    def is_watched(self) -> bool:
        """Whether its launcher knows of its end without running a program: a process, or a look at files."""
        return self.job.pid is not None or self._scheduler is not None

    @property
    def place(self) -> str:
        """The node of a cluster that it runs on; empty for this machine."""
        starts = self._job_state.starts if self._job_state else ()
        return starts[-1].node if starts else ""

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
        if self._scheduler is not None:
            self._follow(ended=found is not None)
        return None if found is None else self._ended(found)

    def _follow(self, *, ended: bool = False) -> None:
        """Write down that the scheduler has started the job, or why it has not."""
        assert self._scheduler is not None
        state = self._scheduler.state(self.job)
        if state is None or state == self._job_state:
            return
        before = self._job_state.starts if self._job_state else ()
        self._job_state = state
        from kharness.runs.jobs.job_status import attempts_of

        *closed, last = attempts_of(self._submitted, state.starts)
        if len(state.starts) > len(before):
            # the job has told its start by the wall clock, of another machine mostly
            self._begun = time.monotonic() - max(0.0, time.time() - last.started)
            # Records of the attempts before it are none of its own.
            self._read_from(last.journal_offset)
        self._attempt = replace(last, waiting=(state.waiting or None) if state.waits else None)
        self._closed = closed
        if not ended:
            with contextlib.suppress(OSError):
                status: Status = QUEUED if state.waits else RUNNING
                self._write(RunStatus(status, [*self._before, *closed, self._attempt]))

    def stop(self, stop: Stop) -> None:
        """Ask the training to save and stop after its current step."""
        self.stop_asked = stop
        self._stop_asked_at = time.monotonic()
        self._launcher.cancel(self.job, kill=False)

    def kill(self) -> None:
        """Kill the run and all its processes but its agent."""
        self.kill_asked = True
        self._launcher.cancel(self.job, kill=True)

    def output_tail(self, lines: int = 15) -> list[str]:
        """The last lines that this attempt printed."""
        from kharness.runs.output_tail import MAX_BYTES, output_tail  # a program that begins does not wait

        text = output_tail(self.launch.directory, lines, since=self._log_begins, most=2 * MAX_BYTES)
        return [line[:300] for line in text.split("\n") if line.strip()]

    def _read_from(self, offset: int) -> None:
        from kharness.runs.journal_tail import JournalTail

        self._journal: JournalTail = JournalTail(self.launch.directory, since=offset)
        self.state = self._journal

    def _ended(self, found: Exit) -> Outcome:
        # The process has ended, so its journal is complete: judged before this read, an end record still to
        # be read would be missed.
        self.read()
        if found.exit_code == 0 and not self.state.start and FROM_SCRATCH not in self.launch.arguments:
            from monitoring.journal.run_state import read_end

            # It found that an earlier attempt was complete, and did nothing.
            self.state = read_end(self.launch.directory / JOURNAL)
        verdict = judge(
            found, self.state, self.launch.asked, stop=self.stop_asked, output=self.output_tail(100)
        )
        if (verdict.status, verdict.cause) == (FAILED, ERROR) and not has_room(self.launch.directory):
            # then neither its journal nor its output could say so
            reason = f"{verdict.reason}; no space left on device, for {self.launch.shown_directory}"
            verdict = replace(verdict, cause=DISK_FULL, reason=reason)
        work = self._machine.read(newest=AT_ONCE) if self._machine else None
        attempt = replace(
            self._attempt,
            ended=found.ended,
            waiting=None,
            other_work=other_work(self._work_before, work),
            exit_code=found.exit_code,
            signal=found.signal,
            cause=verdict.cause,
            reason=verdict.reason,
        )
        if self._scheduler is not None and not self.place:
            attempt = replace(attempt, started=found.ended)  # it has only waited
        # Kept until it is on disk, as the only record of how the attempt ended.
        self._unwritten = RunStatus(verdict.status, [*self._before, *self._closed, attempt])
        self.write_end()
        by_scheduler = self._scheduler is not None and self.stop_asked is None and not found.over_timeout
        return Outcome(verdict.status, attempt, by_scheduler)

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


def end_of_journal(directory: Path) -> int:
    """The offset at which a new attempt writes; a first one does not wait for what finds it."""
    if not (directory / JOURNAL).exists():
        return 0
    from kharness.runs.journal_tail import end_offset

    return end_offset(directory)


def _as_json(value: Job | Slot) -> Mapping[str, Any]:
    return asdict(value)
