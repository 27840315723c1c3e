"""Writes alerts.jsonl, the alerts of a run by its agent, and puts them into words."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from monitoring.journal.files import ALERTS
from monitoring.journal.journal import Journal
from monitoring.journal.records import Record, read_records
from monitoring.journal.reentrant_queue import ReentrantQueue

Severity = Literal["info", "warning", "error"]

Episode = tuple[str, str]
"""Rule and subject, which the beginning and the end of an alert have in common."""

# Alerts that end when the GPU answers again.
GPU_FAILURES = ("gpu_lost", "gpu_error")


def is_alert(record: Record) -> bool:
    """Whether a record of alerts.jsonl is an alert: a full disk leaves a gap among them."""
    return record.get("event") != "gap"


def is_news(alert: Record) -> bool:
    """Whether an alert is to be reported to people: a warning, an error, or the end of either."""
    is_over = alert.get("state") == "resolved" and alert.get("resolves") != "info"
    return is_alert(alert) and (alert.get("severity") != "info" or is_over)


def episode_of(alert: Record) -> Episode:
    """Return which episode an alert begins or ends."""
    return str(alert.get("rule")), str(alert.get("subject") or "")


def take_alert(firing: dict[Episode, Record], alert: Record) -> None:
    """Update the warnings and errors that fire, newest last: one does until its subject is well again."""
    if not is_alert(alert):
        return
    rule, subject = episode = episode_of(alert)
    firing.pop(episode, None)
    if rule == "gpu_back":  # without a subject it is all GPUs
        for failed in [one for one in firing if one[0] in GPU_FAILURES and subject in ("", one[1])]:
            del firing[failed]
    elif alert.get("state") != "resolved" and alert.get("severity") != "info":
        firing[episode] = alert


def where(directory: Path, run: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields that every alert carries, by run.json: which run, where it is and how to stop it."""
    attempt = run["attempts"][-1]
    stop = f"kill {attempt.get('pid')}"
    if is_controlled(run):
        stop = f"make control RUN={command_path(directory)} STOP=1"
    return {
        "correlation_id": run["run_id"],
        "run": run["tracking"]["name"],
        "host": attempt.get("host"),
        "directory": str(directory.absolute()),
        "stop": stop,
    }


def is_controlled(run: Mapping[str, Any]) -> bool:
    """Whether a run is a training of this repository, which `make` commands are for."""
    return "MODEL" in run["config"]


def command_path(directory: Path) -> str:
    """Return a directory as a command takes it, from the folder that this process is in."""
    path, here = directory.absolute(), Path(os.getcwd())
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def alert_text(alert: Record) -> str:
    """Return an alert's text for readers elsewhere: what, in which run, and where that is."""
    message, run = str(alert.get("message")), alert.get("run")
    place = ", ".join(str(alert[key]) for key in ("host", "directory") if alert.get(key))
    return f"{message} ({f'run {run}, ' if run else ''}{place})" if place else message


def alert_hint(alert: Record) -> str:
    """Return what to look at and how to stop the training; empty if resolved, or if it names nothing."""
    look, stop = alert.get("look_at"), alert.get("stop")
    if not look or alert.get("state") == "resolved":
        return ""
    return f"look at {look}; to stop the training: {stop}" if stop else f"look at {look}"


class Alerts:
    """Appends alert records; any thread may, and a full disk raises nothing (see Journal)."""

    def __init__(
        self, directory: Path, *, shared: Mapping[str, object] | None = None, name: str = ALERTS
    ) -> None:
        """`shared` is in every alert that does not say otherwise (see `where`), `name` that of the file."""
        self._shared = dict(shared or {})
        self._journal = Journal(directory / name)
        self._queue = ReentrantQueue(self._take)
        # episodes that earlier agents began, which are not reported again
        self._firing = _firing(directory / name)
        self._episodes = threading.Lock()

    def add(self, rule: str, severity: Severity, message: str, **fields: object) -> None:
        """Record one alert: the rule that found it, a sentence for a person, and what else it holds."""
        self._queue.add(
            {
                "event": "alert",
                "time": time.time(),
                "seq": 0,
                "attempt": self._journal.attempt,
                "rule": rule,
                "severity": severity,
                "message": message,
                **self._shared,
                **fields,
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
        self._queue.add(None)

    def _take(self, record: Record | None) -> None:
        if record is None:
            self._journal.close()
        else:
            self._journal.append_any(record)


def _firing(path: Path) -> dict[Episode, str]:
    """Return the message of each rule and subject whose last alert is not resolved."""
    firing: dict[Episode, str] = {}
    for alert, _ in read_records(path):
        if alert.get("state") == "firing":
            firing[episode_of(alert)] = str(alert.get("message"))
        elif alert.get("state") == "resolved":
            firing.pop(episode_of(alert), None)
    return firing
