"""The page of one run besides its charts: what ran, where, alerts, checkpoints, changes, files."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.control import LOG_EVERY, LR_FACTORS, PROFILED_STEPS, WORDS, ControlRequest, send, waiting
from monitoring.errors import MonitoringError, UserError
from monitoring.journal.alerts import Episode, episode_of, is_alert
from monitoring.journal.files import ALERTS, ENVIRONMENT_JSON, JOURNAL, PROFILER, REQUESTS
from monitoring.journal.records import PICTURES, Record, read_records, time_of
from monitoring.journal.run_json import read_run_json
from monitoring.notes import Notes, NotesError, checked, write_notes
from monitoring.web.events import SparseRecords
from monitoring.web.files import LOG, names_in, pictures_in
from monitoring.web.past import alerts_then, events_then, row_then
from monitoring.web.rows import RunRow, best_values

# Alerts, checkpoints and changes that are sent; of more, the newest.
MOST = 500

SOURCE = "dashboard"

# Documented diagnosis -> the rules that make it.
DIAGNOSES: Mapping[str, Sequence[str]] = {
    "NaN or infinite values": ("nonfinite", "diverged"),
    "Loss plateau": ("loss_plateau",),
    "Exploding gradients": ("gradient_norm",),
    "Low GPU utilization": ("gpu_utilization",),
    "Overfitting": ("overfitting",),
}


class ControlRefused(UserError):
    """A request that is not sent."""


class RunDetails:
    """The details of runs; a journal's records beside steps are read once, then what is new. Thread-safe."""

    def __init__(self, *, read_only: bool = False) -> None:
        self.read_only = read_only
        self._held: dict[str, SparseRecords] = {}
        self._lock = threading.Lock()

    def events(self, row: RunRow) -> SparseRecords:
        """Return the records of a run's journal but its steps, as of now."""
        with self._lock:
            held = self._held.get(row.id)
            if held is None:
                if len(self._held) >= MOST:
                    self._held.pop(next(iter(self._held)))
                held = self._held[row.id] = SparseRecords(row.directory / JOURNAL)
            held.refresh()
            row.best = best_values(held.records)
        return held

    def of(self, row: RunRow, moment: float | None = None) -> dict[str, Any]:
        """Return everything that a run's page shows besides charts, now or at a moment in the past."""
        records = self.events(row).records
        then = row if moment is None else row_then(row, moment)
        if moment is not None:
            records = events_then(row, records, moment)
        starts = _of(records, "start")
        start = dict(starts[-1]) if starts else {}
        try:
            run = read_run_json(row.directory)
        except MonitoringError:
            run = {}
        start.pop("config", None)
        run = {name: value for name, value in run.items() if name != "config"}
        alerts = alerts_of(row.directory)
        control = self.control_of(row)
        if moment is not None:
            alerts, control["why_not"] = alerts_then(alerts, moment), "the page shows an earlier moment"
        return {
            "facts": then.facts if then else row.facts,
            "metrics": then.metrics if then else {},
            "run": run,
            "start": start,
            "options": then.options if then else row.options,
            "automatic": start.get("automatic") or {},
            "alerts": alerts,
            "diagnoses": diagnoses(alerts),
            "checkpoints": _of(records, "checkpoint")[-MOST:],
            "ends": _of(records, "end")[-MOST:],
            "starts": [
                {name: one.get(name) for name in ("time", "attempt", "seq", "resumed_from")} for one in starts
            ],
            "changes": _of(records, "control_change", "control_refused")[-MOST:],
            "pending": waiting(row.directory / REQUESTS)[:MOST] if moment is None else [],
            "control": control,
            "logs": names_in(row.directory, LOG),
            "pictures": list(pictures_in(row.directory))[:MOST],
            "noted_pictures": _noted(records),
            "predictions": _predictions(records),
            "traces": _traces(row.directory),
            "has_environment": (row.directory / ENVIRONMENT_JSON).is_file(),
            "directory": str(row.directory),
        }

    def control_of(self, row: RunRow) -> dict[str, Any]:
        """Return whether a run accepts requests, why not, and the bounds of each."""
        why = ""
        if self.read_only:
            why = "this page is read-only"
        elif not row.is_running:
            why = f"the run does not train now: {row.facts['status']}"
        elif not os.access(row.directory, os.W_OK):
            why = "you may not write to its directory"
        return {
            "why_not": why,
            "words": list(WORDS),
            "log_every": [LOG_EVERY.start, LOG_EVERY.stop - 1],
            "lr_factor": list(LR_FACTORS),
            "profile": [PROFILED_STEPS.start, PROFILED_STEPS.stop - 1],
        }

    def annotate(self, row: RunRow, tags: object, text: object) -> Notes:
        """Keep tags and a note in a run's directory; NotesError or RunDirectoryError if that cannot be."""
        if self.read_only:
            raise NotesError("this page is read-only", hint="start it without READ_ONLY=y")
        notes = checked(tags, text)
        write_notes(row.directory, notes)
        return notes

    def request(self, row: RunRow, changes: object) -> ControlRequest:
        """Send a request to a running training; ControlRefused or RequestError where that cannot be."""
        if why := self.control_of(row)["why_not"]:
            raise ControlRefused(f"{row.facts['name']}: {why}", hint="its page says when it can be")
        if not isinstance(changes, dict) or not set(changes) <= set(WORDS):
            raise ControlRefused("a request is an object of known words", hint=", ".join(WORDS))
        return send(row.directory, changes, source=SOURCE)


def alerts_of(directory: Path) -> list[Record]:
    """Return the newest alerts of a run, the oldest first, with when each was over (`ended`, `end_step`)."""
    found: list[Record] = []
    open_ones: dict[Episode, Record] = {}
    for path in [directory / ALERTS, *sorted(directory.glob(ALERTS.replace(".", ".*.")))]:
        for alert, _ in read_records(path):
            if not is_alert(alert):
                continue
            began = open_ones.pop(episode_of(alert), None)
            if alert.get("state") == "resolved":
                if began is not None:
                    began["ended"], began["end_step"] = alert.get("time"), alert.get("global_step")
                    began["end_message"] = alert.get("message")
                continue
            found.append(alert)
            if alert.get("state") == "firing":
                open_ones[episode_of(alert)] = alert
    found.sort(key=time_of)
    return found[-MOST:]


def diagnoses(alerts: Sequence[Record]) -> list[dict[str, Any]]:
    """Return each documented diagnosis with how often it fired and whether it does now."""
    answer = []
    for title, rules in DIAGNOSES.items():
        own = [alert for alert in alerts if alert.get("rule") in rules]
        last = own[-1] if own else {}
        answer.append(
            {
                "title": title,
                "count": len(own),
                "fires": any(alert.get("state") == "firing" and "ended" not in alert for alert in own),
                "message": last.get("message"),
            }
        )
    return answer


def _of(records: Sequence[Record], *events: str) -> list[Record]:
    return [record for record in records if record.get("event") in events]


def _noted(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the pictures that records name, with their steps."""
    found = []
    for record in records:
        pictures = record.get(PICTURES)
        if isinstance(pictures, dict):
            step = record.get("global_step")
            found += [{"name": str(n), "file": str(f), "step": step} for n, f in pictures.items()]
    return found[-MOST:]


def _predictions(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the newest predictions that an evaluation has recorded."""
    for record in reversed(records):
        if isinstance(predictions := record.get("predictions"), list):
            return [one for one in predictions if isinstance(one, dict)][:MOST]
    return []


def _traces(directory: Path) -> list[dict[str, Any]]:
    """Return the traces of the profiler, the newest first, with their sizes in bytes."""
    try:
        names = names_in(directory / PROFILER, "")
    except OSError:
        return []
    sizes = [(name, os.path.getsize(directory / PROFILER / name)) for name in names]
    return [{"name": name, "size": size} for name, size in sorted(sizes, reverse=True)[:MOST]]
