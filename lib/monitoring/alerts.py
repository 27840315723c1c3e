"""alerts.jsonl: what somebody should know about a run, written by its agent."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Literal

from monitoring.journal import Journal

ALERTS = "alerts.jsonl"

Severity = Literal["info", "warning", "error"]


class Alerts:
    """Appends alert records; several threads may, and a full disk raises nothing (see Journal)."""

    def __init__(self, directory: Path, *, correlation_id: str | None = None) -> None:
        """`correlation_id`, if given, stands in every alert."""
        self._shared = {} if correlation_id is None else {"correlation_id": correlation_id}
        self._journal = Journal(directory / ALERTS)
        self._lock = threading.Lock()

    def add(self, rule: str, severity: Severity, message: str, **fields: object) -> None:
        """Record one alert: the rule that found it, a sentence for a person, and what else it holds."""
        with self._lock:
            self._journal.append(
                {
                    "event": "alert",
                    "time": time.time(),
                    "seq": 0,
                    "attempt": self._journal.attempt,
                    "rule": rule,
                    "severity": severity,
                    "message": message.encode("utf-8", "replace").decode(),
                    **fields,
                    **self._shared,
                }
            )

    def close(self) -> None:
        with self._lock:
            self._journal.close()
