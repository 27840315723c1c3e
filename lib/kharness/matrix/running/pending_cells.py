"""Remaining work of a matrix: which cells are to run, and the fate of those whose runner died."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kharness.config.config_py import is_current
from kharness.config.errors import ConfigError
from kharness.config.refused import together
from kharness.matrix.launchers import jobs_of, schedules, withdraw
from kharness.runs.causes import DETERMINISTIC
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import STOPPED_EARLY
from kharness.runs.files import STATUS_JSON
from kharness.runs.jobs.job_status import by_job_file
from kharness.runs.launch import FROM_SCRATCH, Exit, Job, Launch
from kharness.runs.standing import closed, status_of_complete
from kharness.runs.status import COMPLETE, PENDING, QUEUED, RUNNING, RunStatus, read_status, write_status
from monitoring.journal.files import JOURNAL
from monitoring.journal.run_state import read_end

# Seconds that a process has to follow its runner into death; the kernel takes some milliseconds.
PATIENCE = 3.0

NO_SETTINGS: Mapping[str, object] = {}


@dataclass
class Remaining:
    """Cells of a matrix, grouped by what has to be done with them."""

    launches: list[Launch] = field(default_factory=list)
    """To run, in the order of the plan."""
    complete: list[str] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    """Name and reason of those that would only fail again."""
    stopped_early: list[str] = field(default_factory=list)
    adopted: list[tuple[Launch, RunStatus]] = field(default_factory=list)
    """Whose jobs a scheduler has, to be taken over."""
    alive: list[tuple[str, str]] = field(default_factory=list)
    """Name and process of those that still run without their runner."""


def remaining(launches: Sequence[Launch], settings: Mapping[str, object] = NO_SETTINGS) -> Remaining:
    """Judge every cell, closing the attempts whose runner died. The caller holds the lock.

    `settings` are those that the cells are to run with from now on: what waits or runs with their launcher is
    taken over, where that can be.
    """
    found = Remaining()
    statuses = settled(launches, settings)
    takes_over = schedules(settings)
    for launch, status in zip(launches, statuses, strict=True):
        cause = status.last.cause if status.last else None
        # Started again, it would have two writers to one journal.
        if status.status in (RUNNING, QUEUED):
            job = (status.last.job if status.last else None) or {}
            if takes_over and job.get("launcher") == settings.get("LAUNCHER"):
                found.adopted.append((launch, status))
            else:
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


def withdraw_waiting(launches: Sequence[Launch], settings: Mapping[str, object]) -> int:
    """Take back the jobs that wait in a queue with other options than `settings`; returns how many.

    They are pending again. The caller holds the lock. MatrixError where the scheduler does not answer.
    """
    jobs = _jobs(launches, [_readable_status(launch) for launch in launches])
    return withdraw(list(jobs.values()), settings)


def to_run_again(
    launches: Sequence[Launch], settings: Mapping[str, object] = NO_SETTINGS, *, failed_only: bool
) -> list[Launch]:
    """Return cells to run from scratch as a new attempt; MatrixError if one still runs.

    With `failed_only` those that have begun and are not complete. The caller holds the lock.
    """
    chosen = []
    for launch, status in zip(launches, settled(launches, settings), strict=True):
        if status.status in (RUNNING, QUEUED):
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


def settled(launches: Sequence[Launch], settings: Mapping[str, object] = NO_SETTINGS) -> list[RunStatus]:
    """Return the statuses of cells without a runner; "running" and "queued" only for what outlives it.

    An attempt whose runner died is closed from what its journal and its job say, so that a training which was
    complete is not repeated. A status.json that cannot be read is renamed, and made again from the journal.
    MatrixError where a scheduler that may have jobs of the cells does not answer.
    """
    statuses = [_readable_status(launch) for launch in launches]
    # The caller holds the lock, so no runner is at it: what says "running" was left so, unless it lives.
    left = _jobs(launches, statuses)
    alive, ends = _outliving(list(left.values()), settings)
    for place, status in enumerate(statuses):
        if status.status not in (RUNNING, QUEUED) or status.last is None:
            continue
        launch = launches[place]
        if place in left and (left[place][1].launcher, left[place][1].id) in alive:
            statuses[place] = by_job_file(launch.directory, status, launch.asked)
            if statuses[place].status not in (RUNNING, QUEUED):  # since the question: nobody takes it over
                write_status(launch.directory, statuses[place])
            continue
        job = left[place][1] if place in left else None
        end = ends.get((job.launcher, job.id)) if job else None
        statuses[place] = closed(launch.directory, status, launch.asked, end)
        write_status(launch.directory, statuses[place])
    return statuses


def _jobs(launches: Sequence[Launch], statuses: Sequence[RunStatus]) -> Mapping[int, tuple[Launch, Job]]:
    """Cells that are said to run or to wait, with their jobs, by their place."""
    return {
        place: (launch, Job(**status.last.job))
        for place, (launch, status) in enumerate(zip(launches, statuses, strict=True))
        if status.status in (RUNNING, QUEUED) and status.last is not None and status.last.job
    }


def _outliving(
    pairs: Sequence[tuple[Launch, Job]], settings: Mapping[str, object]
) -> tuple[set[tuple[str, str]], Mapping[tuple[str, str], Exit]]:
    """Launcher and id of the jobs that are still alive, and how others have ended as a scheduler knows.

    Processes that are about to die are waited for.
    """
    running, ends = jobs_of(pairs, settings, claim=True)
    alive = set(running)
    processes = [(launch, job) for launch, job in pairs if job.pid is not None]
    of_processes = {(job.launcher, job.id) for _, job in processes}
    deadline = time.monotonic() + PATIENCE
    while alive & of_processes and time.monotonic() < deadline:
        time.sleep(0.02)
        alive = (alive - of_processes) | set(jobs_of(processes, settings)[0])
    return alive, ends


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
    began = read_end(launch.directory / JOURNAL, since=last.journal_offset).start
    return () if began else (FROM_SCRATCH,)


def _process(status: RunStatus) -> str:
    attempt = status.last
    if attempt is None or attempt.job is None:
        return "a process"
    job = attempt.job
    if job["pid"] is not None:
        return f"pid {job['pid']} on {job['host']}"
    where = f" on {job['host']}" if job["host"] else ""
    return f"job {(attempt.slot or {}).get('job') or job['id']} of {job['launcher']}{where}"
