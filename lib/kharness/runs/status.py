"""status.json: the outcome of a run and of its attempts; written by the process that launched them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import (
    CANCELLED,
    EXIT_STOPPED,
    NODE_FAILED,
    PREEMPTED,
    REFUSED,
    RUNNER_DIED,
    STOPPED,
    STOPPED_EARLY,
    TIMED_OUT,
)
from kharness.runs.files import STATUS_JSON
from kharness.runs.launch import FROM_SCRATCH
from monitoring.errors import is_full
from monitoring.journal import end_status
from monitoring.journal.atomic_file import write_atomically, write_within
from monitoring.journal.encoding.json_shape import (
    NUMBER,
    NUMBER_OR_NULL,
    OBJECT_OR_NULL,
    TEXT_OR_NULL,
    WHOLE_OR_NULL,
    check_shape,
    json_lines,
    read_json,
)

PENDING: Final = "pending"
QUEUED: Final = "queued"
"""In the hands of a scheduler that has not started it yet."""
RUNNING: Final = "running"
SILENT: Final = "silent"
"""Running on another host, as far as its files say, and without a record for long; in no file."""
COMPLETE: Final = end_status.COMPLETE
FAILED: Final = end_status.FAILED
TIMEOUT: Final = "timeout"
KILLED: Final = "killed"
"""Ended by a signal."""
INTERRUPTED: Final = end_status.INTERRUPTED
"""Stopped on request with everything saved."""
UNREADABLE: Final = "unreadable"
"""Its status.json is damaged; in no file."""

Status = Literal[
    "pending",
    "queued",
    "running",
    "silent",
    "complete",
    "failed",
    "timeout",
    "killed",
    "interrupted",
    "unreadable",
]

# Causes that say nothing about the run itself.
BESIDE_THE_RUN = (CANCELLED, NODE_FAILED, PREEMPTED, REFUSED, RUNNER_DIED, STOPPED, STOPPED_EARLY)


@dataclass(frozen=True)
class Attempt:
    """One process. Times are UTC epoch seconds; what is not known (yet) is None."""

    started: float
    pid: int | None = None
    ended: float | None = None
    exit_code: int | None = None
    """None for a process that a signal ended."""
    signal: int | None = None
    reason: str | None = None
    """Why it is not complete."""
    cause: str | None = None
    """Kind of the reason, one of kharness.runs.causes."""
    waiting: str | None = None
    """Why a queued one waits, and until when, as the scheduler said last."""
    job: Mapping[str, Any] | None = None
    """Reference by which its launcher finds it again; None until it is launched."""
    slot: Mapping[str, Any] | None = None
    """The part of the machine that it was given."""
    arguments: Sequence[str] = ()
    """Further flags of the training, such as --from-scratch."""
    other_work: float | None = None
    """The share of the processors, from 0 to 1, that others than the runner and its runs kept busy."""
    journal_offset: int = 0
    """Where in metrics.jsonl its records begin, in bytes."""
    output_offset: int = 0
    """Where in output.log its lines begin, in bytes."""

    @property
    def seconds(self) -> float | None:
        """Wall time from launch to end; not known where the clock was set back meanwhile."""
        if self.ended is None or self.ended < self.started:
            return None
        return self.ended - self.started

    @property
    def failed(self) -> bool:
        """Whether it ended badly, other than on request, by its scheduler or together with the runner."""
        # Only a job has its name in the slot: at its time limit it saves, to go on in the next.
        if self.cause == TIMED_OUT and self.exit_code == EXIT_STOPPED and "job" in (self.slot or {}):
            return False
        return self.cause is not None and self.cause not in BESIDE_THE_RUN

    @property
    def from_scratch(self) -> bool:
        """Whether it takes nothing over from the attempts before it."""
        return FROM_SCRATCH in self.arguments


def failed_before(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Those before the last that failed: with any, a complete run is an unstable one."""
    return [attempt for attempt in attempts[:-1] if attempt.failed]


def other_work(attempts: Sequence[Attempt]) -> float | None:
    """Return the share of other work, weighted by the length of the attempts since the last start from
    scratch; None if one was not measured.
    """
    first = max((i for i, attempt in enumerate(attempts) if attempt.from_scratch), default=0)
    known = [
        (attempt.seconds, attempt.other_work)
        for attempt in attempts[first:]
        if attempt.seconds is not None and attempt.other_work is not None
    ]
    seconds = sum(length for length, _ in known)
    if len(known) < len(attempts[first:]) or not seconds:
        return None
    return sum(length * share for length, share in known) / seconds


@dataclass(frozen=True)
class RunStatus:
    """The outcome of a run."""

    status: Status
    attempts: Sequence[Attempt] = ()
    """The oldest first."""

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def stopped_early(self) -> bool:
        """Whether it was ended for others that were better."""
        return self.status != COMPLETE and self.last is not None and self.last.cause == STOPPED_EARLY


def resumed_words(start: Mapping[str, object]) -> str:
    """Say where an attempt went on, by its start record; empty where that does not say it."""
    resumed = start.get("resumed_from", "")
    if resumed is None:
        return "from scratch"
    return f"resumed at step {resumed['global_step']}" if isinstance(resumed, Mapping) else ""


def write_status(directory: Path, status: RunStatus, *, durable: bool = True) -> None:
    """Replace DIRECTORY/status.json; a `durable` one survives a loss of power.

    On a full disk it is written over, or nobody would know how the run has ended.
    """
    path, data = directory / STATUS_JSON, status_text(status).encode()
    try:
        write_atomically(path, data, durable=durable)
    except OSError as error:
        if not is_full(error):
            raise
        write_within(path, data)


def status_text(status: RunStatus) -> str:
    """The text of status.json."""
    return json_lines(status).decode()


_SHAPE = {
    "status": str,
    "attempts": [
        {
            "started": NUMBER,
            "pid?": WHOLE_OR_NULL,
            "ended?": NUMBER_OR_NULL,
            "exit_code?": WHOLE_OR_NULL,
            "signal?": WHOLE_OR_NULL,
            "reason?": TEXT_OR_NULL,
            "cause?": TEXT_OR_NULL,
            "waiting?": TEXT_OR_NULL,
            "job?": OBJECT_OR_NULL,
            "slot?": OBJECT_OR_NULL,
            "arguments?": [str],
            "journal_offset?": int,
            "output_offset?": int,
        }
    ],
}


def read_status(directory: Path) -> RunStatus:
    """DIRECTORY/status.json; MatrixError if it is missing or not what write_status writes."""
    path = os.path.join(directory, STATUS_JSON)  # a Path takes longer to make than the file to read
    try:
        with open(path, "rb") as file:
            content = read_json(file.read())
        check_shape(content, _SHAPE)
        if content["status"] not in get_args(Status):
            raise ValueError(f"unknown status {content['status']!r}")
        return RunStatus(content["status"], [_attempt(attempt) for attempt in content["attempts"]])
    except (OSError, ValueError) as error:
        raise MatrixError(
            f"{path} cannot be read: {error}", hint="it is damaged, or not what a runner wrote"
        ) from error


def _attempt(content: Mapping[str, Any]) -> Attempt:
    """Fields that a later version added are ignored."""
    known = {name: value for name, value in content.items() if name in _FIELDS}
    return Attempt(**{**known, "arguments": tuple(known.get("arguments", ()))})


_FIELDS = frozenset(field.name for field in fields(Attempt))
