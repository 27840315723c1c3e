"""A status.json that a loss of power or a full disk took, made again from the journal of a complete run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kharness.runs.causes import judge_unseen
from kharness.runs.errors import MatrixError
from kharness.runs.status import COMPLETE, Attempt, RunStatus, read_status
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import MEASURING, last_record
from monitoring.journal.run_state import read_end


def known_status(directory: Path, asked: Mapping[str, object]) -> RunStatus:
    """status.json, or, where it is lost or torn, that of a run whose journal is complete.

    MatrixError where neither says. `asked` has the values that the run was to be trained with.
    """
    try:
        return read_status(directory)
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


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
