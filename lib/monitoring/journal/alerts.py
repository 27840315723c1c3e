"""alerts.jsonl: what somebody should know about a run, written by its agent."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Literal

from monitoring.journal.files import ALERTS
from monitoring.journal.journal import Journal
from monitoring.journal.records import Record, read_records
from monitoring.journal.turns import Turns

Severity = Literal["info", "warning", "error"]


def is_news(alert: Record) -> bool:
    """Whether somebody is to hear of an alert: a warning, an error, or that one of them is over."""
    return alert.get("severity") != "info" or alert.get("state") == "resolved"


class Alerts:
    """Appends alert records; any thread may, and a full disk raises nothing (see Journal)."""

    def __init__(self, directory: Path, *, correlation_id: str | None = None, name: str = ALERTS) -> None:
        """`correlation_id`, if given, is in every alert; `name` is that of the file."""
        self._shared = {} if correlation_id is None else {"correlation_id": correlation_id}
        self._journal = Journal(directory / name)
        self._turns = Turns(self._take)
        self._firing = _firing(directory / name)
        self._episodes = threading.Lock()

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

    def fire(
        self, rule: str, severity: Severity, message: str, *, subject: str | None = None, **fields: object
    ) -> None:
        """Record the beginning of an episode, unless that is recorded, by whichever agent."""
        key = rule, subject or ""
        with self._episodes:
            if self._firing.get(key) != message:
                self._firing[key] = message
                self.add(rule, severity, message, state="firing", subject=subject, **fields)

    def resolve(self, rule: str, message: str, *, subject: str | None = None) -> None:
        """Record the end of an episode, if one was going on; `message` says how it is now."""
        with self._episodes:
            if self._firing.pop((rule, subject or ""), None) is not None:
                self.add(rule, "info", message, state="resolved", subject=subject)

    def close(self) -> None:
        self._turns.add(None)

    def _take(self, record: Record | None) -> None:
        if record is None:
            self._journal.close()
        else:
            self._journal.append_any(record)


def _firing(path: Path) -> dict[tuple[str, str], str]:
    """The message of each rule and subject whose last alert is not resolved."""
    firing: dict[tuple[str, str], str] = {}
    for alert, _ in read_records(path):
        key = str(alert.get("rule")), str(alert.get("subject") or "")
        if alert.get("state") == "firing":
            firing[key] = str(alert.get("message"))
        elif alert.get("state") == "resolved":
            firing.pop(key, None)
    return firing
