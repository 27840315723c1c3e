"""How a job on Slurm stands, by its row in the queue and its own file: waiting, or how it has ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from kharness.matrix.launchers._slurm_calls import Row
from kharness.runs.exit_codes import (
    CANCELLED,
    LAUNCH_FAILED,
    NODE_FAILED,
    OUT_OF_MEMORY,
    PREEMPTED,
    TIMED_OUT,
)
from kharness.runs.launch import Exit, JobStart

# A file system of several machines may show a job's last line a little later than Slurm its end.
PATIENT = 2
# Seconds that the clocks of two machines may be apart.
SKEW = 60.0

# Reasons for which a waiting job would wait for ever.
NEVER = frozenset(
    {
        *("PartitionTimeLimit", "BadConstraints", "AccountNotAllowed", "QOSNotAllowed", "InvalidAccount"),
        *(
            "InvalidQOS",
            "PartitionNodeLimit",
            "JobHeldAdmin",
            "launch failed requeued held",
            "JobLaunchFailure",
        ),
        *("AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit", "AssocMaxCpuPerJobLimit"),
        *("QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxGRESPerJob", "DependencyNeverSatisfied"),
    }
)

CAUSE_OF_STATE = {
    "OUT_OF_MEMORY": OUT_OF_MEMORY,
    "TIMEOUT": TIMED_OUT,
    "DEADLINE": TIMED_OUT,
    "PREEMPTED": PREEMPTED,
    "NODE_FAIL": NODE_FAILED,
    "CANCELLED": CANCELLED,
    "BOOT_FAIL": LAUNCH_FAILED,
}
WORDS = {
    OUT_OF_MEMORY: "over the memory of its job",
    TIMED_OUT: "over the time limit of its job",
    PREEMPTED: "preempted",
    NODE_FAILED: "its node failed",
    CANCELLED: "its job was cancelled",
    LAUNCH_FAILED: "its job did not start",
}


def waiting_words(row: Row | None, *, is_packed: bool = False) -> str:
    """Why a job waits, as Slurm says it, and when it is expected to start."""
    if row is None:
        return ""
    if is_packed and row.state == "RUNNING":
        return "its job runs other cells first"
    reason = row.reason or ("starting" if row.state != "PENDING" else "")
    if row.expected is None or row.state != "PENDING":
        return reason
    start = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.expected))
    return f"{reason + ', ' if reason else ''}expected to start at {start}"


def end_of(row: Row | None, starts: Sequence[JobStart], *, over: int, has_begun: bool = False) -> Exit | None:
    """How a job has ended; None while it runs or waits.

    `over` answers of Slurm's in turn had it as one that has ended, or not at all; `row` is the last one. A
    job that `has_begun`, with other cells, is nothing that did not start.
    """
    last = starts[-1] if starts else None
    if row is not None and last is not None and row.ended is not None and row.ended < last.started - SKEW:
        row = None  # of a start before the last one: the accounts have not caught up
    if last is not None and last.end is not None and not last.requeued:
        if last.end.cause is None and last.was_stopped and over == 0:
            return None  # an operator may have it started again
        return _with_state(last, row)
    if row is not None and row.state == "PENDING" and row.reason in NEVER and not over:
        return Exit(None, None, time.time(), LAUNCH_FAILED, f"its job can never start: {row.reason}")
    ended = row.ended if row is not None and row.ended is not None else time.time()
    cancelled = row is not None and row.state == "CANCELLED" and last is None
    if over < (1 if cancelled else PATIENT):
        return None
    if last is not None and last.end is not None:  # its requeue came to nothing
        return last.end
    cause = CAUSE_OF_STATE.get(row.state) if row is not None else None
    if last is None and has_begun and cause != CANCELLED:
        how = WORDS[cause] if cause else "its job ended"
        return Exit(None, None, ended, NODE_FAILED, f"{how} before its turn")
    if row is None or row.is_active:
        return _vanished(last)
    if last is None:
        if cause == CANCELLED:
            return Exit(None, None, ended, CANCELLED, f"its job was cancelled{_by(row)} while it waited")
        where = f" on {row.nodes}" if row.nodes else ""
        if cause == OUT_OF_MEMORY:  # killed before its script had noted a start
            return Exit(None, None, ended, cause, f"over the memory limit of its job{where} before it began")
        return Exit(None, None, ended, LAUNCH_FAILED, f"its job did not start{where}: {row.state}")
    how = f"{WORDS[cause]}{_by(row)}" if cause else f"its job ended as {row.state}"
    return Exit(None, signal.SIGKILL, ended, cause, f"{how} on {last.node}")


def unseen_on(rows: Sequence[Row]) -> str:
    """The nodes that could not open the log of a job, for these rows of jobs of which none has begun.

    Empty where there are none, or where a job runs on another node, which may begin yet.
    """
    failed = {row.nodes for row in rows if (row.state, row.reason) == ("FAILED", "JobLaunchFailure")}
    others = {row.nodes for row in rows if row.state in ("RUNNING", "CONFIGURING")} - failed
    return "" if others else ", ".join(sorted(failed))


def _vanished(last: JobStart | None) -> Exit:
    if last is None:
        return Exit(None, None, time.time(), LAUNCH_FAILED, "its job is not in the queue, and never started")
    reason = f"its job {last.job} on {last.node} is not in the queue, and has noted no end"
    return Exit(None, signal.SIGKILL, time.time(), NODE_FAILED, reason)


def _with_state(start: JobStart, row: Row | None) -> Exit | None:
    """An end that the job has noted, with the cause that only Slurm knows of one from outside."""
    end = start.end
    if end is not None and row is not None and row.by and end.cause == CANCELLED:
        return replace(end, reason=f"{WORDS[CANCELLED]}{_by(row)} on {start.node}")
    if end is None or end.cause is not None or row is None or not (end.signal or start.was_stopped):
        return end
    cause = CAUSE_OF_STATE.get(row.state)
    return replace(end, cause=cause, reason=f"{WORDS[cause]}{_by(row)} on {start.node}") if cause else end


def _by(row: Row) -> str:
    return f" by {row.by}" if row.by else ""


def was_cancelled(starts: Sequence[JobStart]) -> bool:
    """Whether the job itself says that somebody has cancelled it."""
    return bool(starts) and starts[-1].end is not None and starts[-1].end.cause == CANCELLED


def needs_accounts(row: Row | None, starts: Sequence[JobStart]) -> bool:
    """Whether sacct may know more about a job that is over."""
    last = starts[-1] if starts else None
    if was_cancelled(starts) or (row is not None and row.state == "CANCELLED"):
        return row is None or not row.by
    if last is None or last.end is None:
        return row is None or row.is_active
    return last.end.cause is None and (last.end.signal is not None or last.was_stopped)
