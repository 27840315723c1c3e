"""Attempts of a run whose job a scheduler starts, also again: by the file that the job itself writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kharness.runs.causes import judge, judge_unseen, memory_line
from kharness.runs.exit_codes import NODE_FAILED, OUT_OF_MEMORY, STOPPED
from kharness.runs.files import JOB_JSONL
from kharness.runs.jobs.job_file import read_starts
from kharness.runs.launch import Exit, JobStart
from kharness.runs.output_tail import output_tail
from kharness.runs.status import INTERRUPTED, KILLED, PENDING, QUEUED, RUNNING, Attempt, RunStatus
from monitoring.journal.files import JOURNAL
from monitoring.journal.run_state import read_end

# Lines of what was printed that may name a cause.
LINES = 100


def attempts_of(submitted: Attempt, starts: Sequence[JobStart]) -> list[Attempt]:
    """The attempts of one job: one for each start, or the submitted one alone while there is none.

    All but the last are closed; the last is where its start has an end after which the job starts again.
    """
    found = []
    for place, start in enumerate(starts):
        attempt = replace(
            submitted,
            started=start.started,
            waiting=None,
            job={**(submitted.job or {}), "host": start.node, "started": start.started},
            slot=start.slot,
            arguments=submitted.arguments if place == 0 else (),
            journal_offset=start.journal_offset,
        )
        is_last = place == len(starts) - 1
        if start.end is not None and (start.requeued or not is_last):
            end = start.end
            if end.cause is None:
                end = replace(end, cause=STOPPED, reason="the scheduler has started its job again")
            attempt = closed(attempt, end)
        elif not is_last:
            reason = f"the scheduler has started its job again; it was lost on {start.node}"
            attempt = replace(attempt, cause=NODE_FAILED, reason=reason)
        found.append(attempt)
    return found or [submitted]


def closed(attempt: Attempt, end: Exit) -> Attempt:
    """One that ended as its job says."""
    return replace(
        attempt,
        ended=end.ended,
        exit_code=end.exit_code,
        signal=end.signal,
        cause=end.cause,
        reason=end.reason,
    )


def split(status: RunStatus) -> tuple[list[Attempt], Attempt]:
    """The attempts before the last job, and how that was submitted."""
    assert status.last is not None
    job = (status.last.job or {}).get("id")
    first = next(place for place, one in enumerate(status.attempts) if one.job and one.job.get("id") == job)
    return list(status.attempts[:first]), status.attempts[first]


def by_job_file(directory: Path, status: RunStatus, asked: Mapping[str, object]) -> RunStatus:
    """A status that no runner keeps up to date, with what its job has written since."""
    if not is_of_scheduler(directory, status):
        return status
    before, submitted = split(status)
    starts = read_starts(directory, str((submitted.job or {})["id"]))
    if not starts:
        return status
    attempts = attempts_of(submitted, starts)
    last = starts[-1]
    if last.end is None:
        return RunStatus(RUNNING, [*before, *attempts])
    if last.requeued:
        return RunStatus(QUEUED, [*before, *attempts])
    return _judged(directory, [*before, *attempts], last.end, asked)


def _judged(
    directory: Path, attempts: Sequence[Attempt], end: Exit, asked: Mapping[str, object]
) -> RunStatus:
    """The status of a run whose last attempt ended so, by its journal and its output too."""
    tail = read_end(directory / JOURNAL, since=attempts[-1].journal_offset)
    verdict = judge(end, tail, asked, output=output_tail(directory, LINES).split("\n"))
    ended = replace(closed(attempts[-1], end), cause=verdict.cause, reason=verdict.reason)
    return RunStatus(verdict.status, [*attempts[:-1], ended])


def after_its_job(
    directory: Path, status: RunStatus, asked: Mapping[str, object], ended: Exit | None = None
) -> RunStatus:
    """The status of a run whose job is not in the scheduler's hands any more.

    `ended` is how, where the scheduler has said it; a job that was lost with its node writes nothing.
    """
    status = by_job_file(directory, status, asked)
    if status.status not in (RUNNING, QUEUED) or status.last is None:
        return status
    last = status.last
    if last.ended is not None:  # it was to be started again, and was not
        return RunStatus(INTERRUPTED, status.attempts)
    if status.status == QUEUED or not last.job or not last.job.get("host"):
        if len(status.attempts) == 1:
            return RunStatus(PENDING)
        never = replace(last, waiting=None, cause=STOPPED, reason="its job never began")
        return RunStatus(INTERRUPTED, [*status.attempts[:-1], never])
    if ended is not None and ended.cause is not None:
        return _judged(directory, status.attempts, ended, asked)
    tail = read_end(directory / JOURNAL, since=last.journal_offset)
    verdict = judge_unseen(tail, asked)
    end = replace(last, ended=tail.last_time, cause=verdict.cause, reason=verdict.reason)
    if verdict.status == KILLED and (line := memory_line(output_tail(directory, LINES).split("\n"))):
        end = replace(end, cause=OUT_OF_MEMORY, reason=line)
    elif verdict.status == KILLED:
        step = tail.step or 0
        reason = f"its job on {last.job['host']} is gone after step {step}, and has noted no end"
        end = replace(end, cause=NODE_FAILED, reason=reason)
    return RunStatus(verdict.status, [*status.attempts[:-1], end])


def is_of_scheduler(directory: Path, status: RunStatus) -> bool:
    """Whether a job of a scheduler may have written more about it than status.json has."""
    if status.status not in (RUNNING, QUEUED) or status.last is None:
        return False
    job: Mapping[str, Any] = status.last.job or {}
    in_queue = status.status == QUEUED or job.get("pid") is None
    return in_queue and os.path.exists(os.path.join(directory, JOB_JSONL))
