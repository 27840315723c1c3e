"""How a run stands that has no status.json, by its journal: it was started without make, or lost the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kharness.runs.causes import Ending, judge_unseen
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import RUNNER_DIED, SIGNAL, STOPPED_EARLY
from kharness.runs.jobs.job_status import by_job_file
from kharness.runs.status import (
    COMPLETE,
    KILLED,
    PENDING,
    RUNNING,
    Attempt,
    RunStatus,
    read_status,
)
from monitoring.agent.ending import is_running
from monitoring.errors import MonitoringError
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import MEASURING, last_record
from monitoring.journal.run_json import read_run_json
from monitoring.journal.run_state import read_end


def is_missing(directory: Path) -> bool:
    """Whether a run is not complete, and was not stopped early for others that were better."""
    try:
        status = known_status(directory, {})
    except MatrixError:
        return True
    stopped_early = status.last is not None and status.last.cause == STOPPED_EARLY
    return status.status != COMPLETE and not stopped_early


def known_status(directory: Path, asked: Mapping[str, object]) -> RunStatus:
    """status.json with what a job on a cluster has noted since; where it is lost or torn, that of a run
    whose journal is complete.

    MatrixError where neither says. `asked` has the values that the run was to be trained with.
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
    begun, ended = (_number(record.get("time")) for record in (state.start, state.end))
    attempt = Attempt(begun or 0.0, None, ended=ended, cause=verdict.cause, reason=verdict.reason)
    return RunStatus(verdict.status, [attempt])


def status_without_runner(directory: Path, asked: Mapping[str, object]) -> RunStatus:
    """The status of a training that no runner has started; PENDING where nothing was trained."""
    try:
        last = read_run_json(directory)["attempts"][-1]
    except MonitoringError:
        return RunStatus(PENDING)
    attempt = Attempt(last["started"], last["pid"])
    state = read_end(directory / JOURNAL)
    has_ended = state.end.get("attempt") == last["attempt"]  # its process may live on, as a notebook does
    if is_running(last) and not has_ended:
        return RunStatus(RUNNING, [attempt])
    ending = judge_unseen(state, asked)
    if ending.cause == RUNNER_DIED:
        ending = Ending(KILLED, SIGNAL, f"its process is gone after step {state.step or 0}")
    elif state.end.get("error"):
        ending = replace(ending, reason=str(state.end["error"]))
    ended = _number(state.end.get("time"))
    return RunStatus(ending.status, [replace(attempt, ended=ended, cause=ending.cause, reason=ending.reason)])


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
