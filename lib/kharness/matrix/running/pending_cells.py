"""Remaining work of a matrix: which cells are to run, and the fate of those whose runner died."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from kharness.config.config_py import is_current
from kharness.config.errors import ConfigError
from kharness.config.refused import together
from kharness.matrix.launchers import launcher_of
from kharness.runs.causes import DETERMINISTIC, judge_unseen
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import STOPPED_EARLY
from kharness.runs.files import STATUS_JSON
from kharness.runs.journal_tail import JournalTail
from kharness.runs.launch import FROM_SCRATCH, Job, Launch
from kharness.runs.lost_status import status_of_complete
from kharness.runs.status import COMPLETE, PENDING, RUNNING, Attempt, RunStatus, read_status, write_status

# Seconds that a process has to follow its runner into death; the kernel takes some milliseconds.
PATIENCE = 3.0


@dataclass
class Remaining:
    """The cells of a matrix by what is to become of them."""

    launches: list[Launch] = field(default_factory=list)
    """To run, in the order of the plan."""
    complete: list[str] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    """Name and reason of those that would only fail again."""
    stopped_early: list[str] = field(default_factory=list)
    alive: list[tuple[str, str]] = field(default_factory=list)
    """Name and process of those that still run without their runner."""


def remaining(launches: Sequence[Launch]) -> Remaining:
    """Judge every cell, closing the attempts whose runner died. The caller holds the lock."""
    found = Remaining()
    for launch in launches:
        status = settle(launch)
        cause = status.last.cause if status.last else None
        # Started again, it would have two writers to one journal.
        if status.status == RUNNING:
            found.alive.append((launch.name, _process(status)))
        elif status.status == COMPLETE:
            found.complete.append(launch.name)
        elif cause == STOPPED_EARLY:
            found.stopped_early.append(launch.name)
        elif cause in DETERMINISTIC:
            found.left.append((launch.name, (status.last.reason if status.last else None) or str(cause)))
        else:
            found.launches.append(replace(launch, arguments=_arguments(launch, status)))
    _refuse_edited(found.launches)
    return found


def to_run_again(launches: Sequence[Launch], *, failed_only: bool) -> list[Launch]:
    """Those to be run from scratch, each as a new attempt; MatrixError for one that still runs.

    With `failed_only` those that have begun and are not complete. The caller holds the lock.
    """
    chosen = []
    for launch in launches:
        status = settle(launch)
        if status.status == RUNNING:
            raise MatrixError(
                f"{launch.name} still runs without its runner, as {_process(status)}",
                hint="stop it first, or wait for its end",
            )
        if not failed_only or status.status not in (COMPLETE, PENDING):
            chosen.append(replace(launch, arguments=(FROM_SCRATCH,)))
    _refuse_edited(chosen)
    return chosen


def _refuse_edited(launches: Sequence[Launch]) -> None:
    """ConfigError for cells whose `.config` or `config.py` was edited by hand: they are not as planned."""
    refused = []
    for launch in launches:
        try:
            is_current(launch.directory, launch.shown_directory)
        except ConfigError as error:
            refused.append(error)
    if refused:
        raise together(refused)


def settle(launch: Launch) -> RunStatus:
    """Return the status of a cell without a runner; "running" only for a process that outlives its runner.

    An attempt whose runner died is closed from what its journal says, so that a training which was complete
    is not repeated. A status.json that cannot be read is renamed, and made again from the journal.
    """
    status = _readable_status(launch)
    last = status.last
    # The caller holds the lock, so no runner is at it: what says "running" was left so, unless it lives.
    if status.status != RUNNING or last is None or _outlives(last):
        return status
    # Read only now that the process is gone: until then it could still write its end record.
    tail = _tail_of(launch.directory, last)
    verdict = judge_unseen(tail, launch.asked)
    closed = replace(last, ended=tail.last_time, cause=verdict.cause, reason=verdict.reason)
    status = RunStatus(verdict.status, [*status.attempts[:-1], closed])
    write_status(launch.directory, status)
    return status


def _outlives(attempt: Attempt) -> bool:
    """Whether the process of an attempt is still alive; one that is about to die is waited for."""
    if attempt.job is None:
        return False
    job = Job(**attempt.job)
    with closing(launcher_of(job)) as launcher:
        return not _becomes_true(lambda: not launcher.alive(job))


def _becomes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _tail_of(directory: Path, attempt: Attempt) -> JournalTail:
    """Return the records that an attempt wrote."""
    tail = JournalTail(directory, since=attempt.journal_offset)
    tail.read()
    return tail


def _readable_status(launch: Launch) -> RunStatus:
    """The status; an unreadable file is kept under another name.

    Where that happened the run is complete if its journal says so, and else pending: it resumes.
    """
    directory = launch.directory
    path = directory / STATUS_JSON
    try:
        status = read_status(directory)
        # The older of two writes may be what the power has left.
        if status.status != PENDING or (found := status_of_complete(directory, launch.asked)) is None:
            return status
    except MatrixError:
        if not directory.is_dir():
            raise MatrixError(
                f"{directory} is not there", hint="a cell's directory was removed; plan the matrix again"
            ) from None
        if path.exists():
            os.replace(path, directory / f"{STATUS_JSON}.unreadable-{time.time_ns()}")
        found = status_of_complete(directory, launch.asked)
    status = found or RunStatus(PENDING)
    write_status(directory, status)
    return status


def _arguments(launch: Launch, status: RunStatus) -> Sequence[str]:
    """--from-scratch again for an attempt that was to start from scratch and died before it did."""
    last = status.last
    if last is None or FROM_SCRATCH not in last.arguments:
        return ()
    return () if _tail_of(launch.directory, last).start else (FROM_SCRATCH,)


def _process(status: RunStatus) -> str:
    job = status.last.job if status.last else None
    return f"pid {job['pid']} on {job['host']}" if job else "a process"
