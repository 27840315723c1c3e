"""A run's row of the table, by the ends of its files: status, progress, newest values, alerts, options."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitoring.errors import MonitoringError
from monitoring.journal.alerts import Episode, take_alert
from monitoring.journal.fields import row_of
from monitoring.journal.fields.row import EPOCH, EVAL
from monitoring.journal.files import ALERTS, JOURNAL, NOTES_JSON, RUN_JSON
from monitoring.journal.records import (
    MEASURING,
    Record,
    as_number,
    parse,
    points,
    read_records,
    seq_of,
    time_of,
)
from monitoring.journal.run_json import read_run_json
from monitoring.journal.run_state import RUNNING, RunState, read_end, status_of, superseded
from monitoring.notes import read_notes
from monitoring.web.events import SparseRecords, sparse
from monitoring.where import field_name

# Bytes at a journal's end that the newest values are taken from: some hundred records.
END_BYTES = 65536
LAST_BYTES = 4096

# Journals up to this size are searched for the best evaluation; of a longer one it is known once its page was
# opened.
MOST_SEARCHED = 4 * 2**20

Signature = tuple[tuple[int, int, int], ...]
"""Inode, size and time of change of each file that a row is made from."""

Facts = dict[str, Any]


@dataclass
class RunRow:
    """One run as the table has it."""

    id: str
    directory: Path
    facts: Facts
    """Values that are sent: status, step, steps, started, updated, …"""
    options: dict[str, object] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest value of each."""
    best: dict[str, float] = field(default_factory=dict)
    """The best value of each that has a direction, as far as it was looked for."""
    version: int = 0

    @property
    def is_running(self) -> bool:
        return bool(self.facts["status"] == RUNNING)

    def fields(self) -> dict[str, object]:
        """Return what conditions compare, by its name: a fact goes before an option, that before a metric."""
        metrics = {name.lower(): value for name, value in self.metrics.items()}
        return {
            **{f"best.{name.lower()}": value for name, value in self.best.items()},
            **{f"last.{name}": value for name, value in metrics.items()},
            **metrics,
            **{field_name(name): value for name, value in self.options.items()},
            **{name: value for name, value in self.facts.items() if value is not None},
        }


def signature(directory: Path, others: Sequence[str] = ()) -> Signature:
    """Return what changes when one of a run's files does, `others` too; FileNotFoundError without a run."""
    found = []
    for name in (JOURNAL, RUN_JSON, ALERTS, NOTES_JSON, *others):
        try:
            status = os.stat(directory / name, follow_symlinks=False)
            # A file that is replaced has another inode, also where it is as long and the clock too coarse for
            # its time.
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except FileNotFoundError:
            found.append((0, 0, 0))
    if not any(inode for inode, _, _ in found[:2]):
        raise FileNotFoundError(directory / JOURNAL)
    return tuple(found)


def read_row(run_id: str, directory: Path, *, now: float | None = None) -> RunRow:
    """Return the row of a run; what cannot be read of it is a sentence in it (`problem`)."""
    now = time.time() if now is None else now
    state, problem, run = read_end(directory / JOURNAL), "", {}
    if (directory / RUN_JSON).exists():
        try:
            run = read_run_json(directory)
        except MonitoringError as error:
            problem = str(error)
    tracking: Mapping[str, Any] = run.get("tracking") or {}
    attempts: list[Mapping[str, Any]] = run.get("attempts") or []
    latest: Mapping[str, Any] = attempts[-1] if attempts else {}
    started = as_number(attempts[0].get("started")) if attempts else _began(directory / JOURNAL)
    config = run.get("config") or state.start.get("config")
    facts: Facts = {
        "id": run_id,
        "run_id": str(run.get("run_id") or state.start.get("run_id") or run_id),
        "name": _name(directory, tracking, state),
        "project": str(tracking.get("project") or state.start.get("project") or ""),
        "group": tracking.get("group"),
        "status": status_of(state, latest, now),
        "started": started,
        "host": str(latest.get("host") or "") or None,
        **state_facts(state, started),
        **alert_facts(directory),
    }
    notes = read_notes(directory)
    facts |= {"tags": ", ".join(notes.tags) or None, "note": notes.text or None}
    if problem:
        facts["problem"] = problem
    options = dict(config) if isinstance(config, Mapping) else {}
    row = RunRow(run_id, directory, facts, options, newest_values(directory / JOURNAL))
    journal = directory / JOURNAL
    if journal.exists() and journal.stat().st_size <= MOST_SEARCHED:
        records = SparseRecords(journal)
        records.refresh()
        row.best = best_values(records.records)
    return row


def newest_values(journal: Path, *, until: int | None = None) -> dict[str, float]:
    """Return the newest value of each metric near the journal's end, of the records that count.

    `until` is a byte offset that stands for the end. Of steps only the last LAST_BYTES are parsed: a thousand
    runs are a matter of a second or two.
    """
    found: dict[str, tuple[float, int]] = {}
    try:
        file = journal.open("rb")
    except FileNotFoundError:
        return {}
    with file:
        size = os.fstat(file.fileno()).st_size if until is None else until
        begins = max(0, size - END_BYTES)
        text = os.pread(file.fileno(), size - begins, begins)
    if size > END_BYTES:
        text = text[text.find(b"\n") + 1 :]  # from the middle of a line on
    text = text[: text.rfind(b"\n") + 1]
    last = text.rfind(b"\n", 0, max(0, len(text) - LAST_BYTES)) + 1
    newest = (record for line in text[last:].splitlines() if (record := parse(line)) is not None)
    for record in (*sparse(text[:last]), *newest):
        if record.get("event") == "start" and (gone := superseded(record)):
            found = {name: held for name, held in found.items() if held[1] not in gone}
        elif record.get("event") in MEASURING:
            seq = seq_of(record)
            found.update({name: (value, seq) for name, value in points(record).items()})
    return {name: value for name, (value, _) in found.items()}


def best_values(records: Iterable[Record]) -> dict[str, float]:
    """Return the best value of each result with a direction that evaluations and epochs have measured."""
    found: dict[str, float] = {}
    for record in records:
        if record.get("event") not in (EVAL, EPOCH):
            continue
        for name, value in points(record).items():
            row = row_of(name)
            if row.better != "neither" and row.kind == "result":
                better = max if row.better == "up" else min
                found[name] = better(value, found.get(name, value))
    return found


def _began(journal: Path) -> float | None:
    """Return when the first record of a journal was written."""
    first: Record = next((record for record, _ in read_records(journal)), {})
    return as_number(first.get("time"))


def _name(directory: Path, tracking: Mapping[str, Any], state: RunState) -> str:
    """Return the tracked name, without the time that trackers append to that of a cell."""
    tracked = str(tracking.get("name") or state.start.get("run_name") or directory.name)
    return directory.name if tracked.startswith(f"{directory.name}_") else tracked


def state_facts(state: RunState, started: float | None) -> Facts:
    """Return the facts of a row that come from the journal."""
    return {
        "step": state.step,
        "steps": state.num_steps,
        "left": state.seconds_left,
        "pace": state.steps_per_second,
        "updated": state.last_time,
        "attempt": state.attempt,
        "seconds": state.last_time - started if state.last_time and started else None,
        "seq": state.last_seq,
    }


def alert_facts(directory: Path, *, until: float = math.inf) -> Facts:
    """Return how many alerts fire, and the newest one's sentence; `until` a moment, UTC epoch seconds."""
    firing: dict[Episode, Record] = {}
    for alert, _ in read_records(directory / ALERTS):
        if time_of(alert) > until:
            break
        take_alert(firing, alert)
    severities = [alert.get("severity") for alert in firing.values()]
    newest = list(firing.values())[-1] if firing else {}
    return {
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "alert": str(newest.get("message") or "") or None,
    }
