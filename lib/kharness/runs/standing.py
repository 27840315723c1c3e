"""How a run stands: what lists, pages, reports and `make status` say of it, each by this one answer.

It is what status.json says, with what the run, its job and its process show since: a runner that is killed
writes no end. Nothing is written here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kharness.runs.causes import Ending, after_step, judge_unseen
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import ERROR, RUNNER_DIED, SIGNAL
from kharness.runs.files import STATUS_JSON
from kharness.runs.jobs.job_status import LINES, after_its_job, by_job_file, is_of_scheduler
from kharness.runs.launch import Exit
from kharness.runs.lock import holder
from kharness.runs.output_tail import output_tail
from kharness.runs.status import (
    COMPLETE,
    KILLED,
    PENDING,
    QUEUED,
    RUNNING,
    SILENT,
    UNREADABLE,
    Attempt,
    RunStatus,
    read_status,
)
from monitoring.errors import MonitoringError
from monitoring.host.name import host_name
from monitoring.host.process import process_started
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import MEASURING, as_number, last_record
from monitoring.journal.run_json import read_run_json
from monitoring.journal.run_state import patience, read_end, status_before_end

NOTHING_ASKED: Mapping[str, object] = {}


def standing(directory: Path, asked: Mapping[str, object] = NOTHING_ASKED) -> RunStatus:
    """Return the status of a run and its attempts; `asked` has the values that it was to be trained with.

    What a scheduler has of it counts as running: who wants to know more asks the scheduler.
    """
    try:
        status = known_status(directory, asked)
    except MatrixError as error:
        if os.path.exists(os.path.join(directory, STATUS_JSON)):
            damaged = Attempt(0.0, None, ended=0.0, cause=ERROR, reason=f"{STATUS_JSON}: {error.__cause__}")
            return RunStatus(UNREADABLE, [damaged])
        return status_without_runner(directory, asked)
    if status.status in (COMPLETE, QUEUED):
        return status
    if status.status == RUNNING and status.last is not None:
        if _is_gone(directory, status.last):
            return closed(directory, status, asked)
        return replace(status, status=SILENT) if _is_silent(directory, status.last) else status
    return _gone_on_by_hand(directory, status, asked) or status


def is_missing(directory: Path) -> bool:
    """Whether a run is not complete, and was not stopped early for others that were better."""
    status = standing(directory)
    return status.status != COMPLETE and not status.stopped_early


def known_status(directory: Path, asked: Mapping[str, object]) -> RunStatus:
    """status.json with what a job on a cluster has noted since; where it is lost or torn, that of a run
    whose journal is complete.

    MatrixError where neither says.
    """
    try:
        return by_job_file(directory, read_status(directory), asked)
    except MatrixError:
        found = status_of_complete(directory, asked)
        if found is None:
            raise
        return found


def status_of_complete(directory: Path, asked: Mapping[str, object]) -> RunStatus | None:
    """The status of a run whose journal says that nothing is left to be trained; None for any other."""
    last = last_record(directory / JOURNAL) or {}
    if last.get("event") in MEASURING and last.get("status") != COMPLETE:
        return None
    state = read_end(directory / JOURNAL)
    if not state.start or state.status != COMPLETE:
        return None
    verdict = judge_unseen(state, asked)
    begun, ended = (as_number(record.get("time")) for record in (state.start, state.end))
    attempt = Attempt(begun or 0.0, None, ended=ended, cause=verdict.cause, reason=verdict.reason)
    return RunStatus(verdict.status, [attempt])


def status_without_runner(directory: Path, asked: Mapping[str, object]) -> RunStatus:
    """The status of a training that no runner has started; PENDING where nothing was trained."""
    try:
        last = read_run_json(directory)["attempts"][-1]
    except MonitoringError:
        last = {}
    state = read_end(directory / JOURNAL)
    began = last.get("started") or as_number(state.start.get("time")) or state.last_time
    if began is None:
        return RunStatus(PENDING)
    attempt = Attempt(began, last.get("pid"))
    if not state.end or (last and state.end.get("attempt") != last["attempt"]):
        word = status_before_end(state, last, time.time())
        if word in (RUNNING, SILENT):
            return RunStatus(RUNNING if word == RUNNING else SILENT, [attempt])
    ending = judge_unseen(state, asked)
    if ending.cause == RUNNER_DIED:
        # There was no runner that could die: what is gone is the training's own process.
        ending = Ending(KILLED, SIGNAL, f"its process is gone {after_step(state)}")
    elif state.end.get("error"):
        ending = replace(ending, reason=str(state.end["error"]))
    ended = as_number(state.end.get("time"))
    return RunStatus(ending.status, [replace(attempt, ended=ended, cause=ending.cause, reason=ending.reason)])


def closed(
    directory: Path, status: RunStatus, asked: Mapping[str, object], end: Exit | None = None
) -> RunStatus:
    """The status of a run whose process or job is gone; `end` is how, where a scheduler has said it."""
    assert status.last is not None
    if status.status == QUEUED or is_of_scheduler(directory, status):
        return after_its_job(directory, status, asked, end)
    # Read only now that the process is gone: until then it could still write its end record.
    state = read_end(directory / JOURNAL, since=status.last.journal_offset)
    output = output_tail(directory, LINES, since=status.last.output_offset).split("\n")
    verdict = judge_unseen(state, asked, output)
    last = replace(status.last, ended=state.last_time, cause=verdict.cause, reason=verdict.reason)
    return RunStatus(verdict.status, [*status.attempts[:-1], last])


def _is_gone(directory: Path, attempt: Attempt) -> bool:
    """Whether nothing of an attempt is left that could go on, as far as this host can tell."""
    job = attempt.job
    if job is None:  # between the decision to start it and its process there is the runner alone
        return holder(directory) is None and holder(directory.parent) is None
    if job.get("pid") is None or job.get("host") != host_name():
        return False
    return job.get("process_started") is None or process_started(job["pid"]) != job["process_started"]


def _is_silent(directory: Path, attempt: Attempt) -> bool:
    """Whether an attempt on another host has written nothing for long."""
    host = (attempt.job or {}).get("host")
    if not host or host == host_name():
        return False
    state = read_end(directory / JOURNAL, since=attempt.journal_offset)
    return time.time() - max(state.last_time or 0.0, attempt.started) > patience(state)


def _gone_on_by_hand(directory: Path, status: RunStatus, asked: Mapping[str, object]) -> RunStatus | None:
    """The status with an attempt that somebody has begun here after those of a runner; None without one."""
    try:
        newest = read_run_json(directory)["attempts"][-1]
    except MonitoringError:
        return None
    before, started = status.last, as_number(newest.get("started")) or 0.0
    if newest.get("host") != host_name() or (before and started <= (before.ended or before.started)):
        return None
    found = status_without_runner(directory, asked)
    return RunStatus(found.status, [*status.attempts, *found.attempts])
