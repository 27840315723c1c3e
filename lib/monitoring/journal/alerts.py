"""alerts.jsonl: what somebody should know about a run, written by its agent."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from monitoring.journal.files import ALERTS
from monitoring.journal.journal import Journal
from monitoring.journal.records import Record
from monitoring.journal.turns import Turns

Severity = Literal["info", "warning", "error"]


class Alerts:
    """Appends alert records; any thread may, and a full disk raises nothing (see Journal)."""

    def __init__(self, directory: Path, *, correlation_id: str | None = None) -> None:
        """`correlation_id`, if given, is in every alert."""
        self._shared = {} if correlation_id is None else {"correlation_id": correlation_id}
        self._journal = Journal(directory / ALERTS)
        self._turns = Turns(self._take)

    def add(self, rule: str, severity: Severity, message: str, **fields: object) -> None:
        """Record one alert: the rule that found it, a sentence for a person, and what else it holds."""
        self._turns.add(
            {
                "event": "alert",
                "time": time.time(),
                "seq": 0,
                "attempt": self._journal.attempt,
                "rule": rule,
                "severity": severity,
                "message": message,
                **fields,
                **self._shared,
            }
        )

    def close(self) -> None:
        self._turns.add(None)

    def _take(self, record: Record | None) -> None:
        if record is None:
            self._journal.close()
        else:
            self._journal.append_any(record)
