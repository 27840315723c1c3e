"""Runs as they stood at a moment: the journal up to it is what a reader had then.

An attempt that later ones did again counts as long as they had not begun. Tags, notes and logs have no
history: they are shown as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monitoring.journal.files import JOURNAL
from monitoring.journal.records import Record, as_number, records_in, time_of
from monitoring.journal.run_state import (
    KILLED,
    PENDING,
    RUNNING,
    SILENT,
    RunState,
    patience,
    read_end,
    status_before_end,
    superseded,
)
from monitoring.journal.tail import first_place
from monitoring.web.events import SparseRecords
from monitoring.web.rows import MOST_SEARCHED, RunRow, alert_facts, best_values, newest_values, state_facts

# Runs that stand so now may have stood otherwise at any moment since their last record.
NO_END = (KILLED, PENDING, RUNNING, SILENT)


def is_read_then(row: RunRow, moment: float) -> bool:
    """Whether the files of a run have to be read for a moment: it had begun, and not ended."""
    return not _had_not_begun(row, moment) and not _had_ended(row, moment)


def row_then(row: RunRow, moment: float) -> RunRow | None:
    """Return a run's row as of a moment, UTC epoch seconds; None where it had not begun."""
    if _had_not_begun(row, moment):
        return None
    if _had_ended(row, moment):
        return row
    started = row.facts["started"]
    journal = row.directory / JOURNAL
    end = end_then(journal, moment)
    state = read_end(journal, until=end)
    if state.last_time is None and started is None:
        return None
    facts = {
        **row.facts,
        "status": _status_then(row, state, moment, end),
        **state_facts(state, started),
        **alert_facts(row.directory, until=moment),
    }
    config = state.start.get("config")
    found = RunRow(row.id, row.directory, facts, dict(config) if isinstance(config, dict) else row.options)
    found.metrics = newest_values(journal, until=end)
    if row.best and (end is None or end <= MOST_SEARCHED):
        found.best = best_values(records_then(journal, end))
    return found


def _had_not_begun(row: RunRow, moment: float) -> bool:
    started = row.facts["started"]
    return started is not None and started > moment


def _had_ended(row: RunRow, moment: float) -> bool:
    updated = row.facts["updated"]
    return updated is not None and updated <= moment and row.facts["status"] not in NO_END


def _status_then(row: RunRow, state: RunState, moment: float, end: int | None) -> str:
    """How it stood: a process that is gone without a word is known to be gone once it was silent."""
    if state.status is not None:
        return state.status
    now = str(row.facts["status"])
    if state.last_time is None:
        return status_before_end(state, row.facts, moment)
    if moment - state.last_time < patience(state) or _goes_on(row.directory / JOURNAL, end, state.attempt):
        return RUNNING
    if state.attempt != row.facts["attempt"] or now == KILLED:
        return KILLED
    return RUNNING if now == RUNNING and moment >= (row.facts["updated"] or 0.0) else SILENT


def _goes_on(journal: Path, end: int | None, attempt: int) -> bool:
    """Whether the record after the moment is of the same attempt."""
    if end is None:
        return False
    with journal.open("rb") as file:
        following: Record = next((record for record, _ in records_in(file, end)), {})
    return following.get("attempt") == attempt


def end_then(journal: Path, moment: float) -> int | None:
    """Return the bytes of a journal that were there at a moment; None for all of it."""
    try:
        with journal.open("rb") as file:
            return first_place(file, lambda record: time_of(record) > moment)
    except FileNotFoundError:
        return None


def records_then(journal: Path, end: int | None) -> list[Record]:
    """Return the records but steps that counted when a journal had so many bytes."""
    found = SparseRecords(journal, until=end)
    found.refresh()
    return found.records


def attempt_then(row: RunRow, moment: float) -> int | None:
    """Return the attempt that a run was in, where later ones followed; None in its last one."""
    journal = row.directory / JOURNAL
    attempt = read_end(journal, until=end_then(journal, moment)).attempt
    return None if attempt >= (row.facts["attempt"] or 0) else attempt


def events_then(row: RunRow, records: Sequence[Record], moment: float) -> list[Record]:
    """Return a run's records but steps as of a moment; `records` are those that count now."""
    if any(superseded(one) for one in records if time_of(one) > moment):
        journal = row.directory / JOURNAL
        return records_then(journal, end_then(journal, moment))
    return [one for one in records if time_of(one) <= moment]


def alerts_then(alerts: Sequence[dict[str, Any]], moment: float) -> list[dict[str, Any]]:
    """Return the alerts that had fired, those that were over later as firing."""
    found = []
    for alert in alerts:
        if time_of(alert) > moment:
            continue
        is_over = (as_number(alert.get("ended")) or 0.0) <= moment
        late = ("ended", "end_step", "end_message")
        found.append(alert if is_over else {k: v for k, v in alert.items() if k not in late})
    return found
