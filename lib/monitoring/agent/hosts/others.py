"""Deals with other hosts for rank 0's agent: copies their alerts, and waits for their end."""

from __future__ import annotations

import time
from pathlib import Path

from monitoring.agent.lock import is_held
from monitoring.agent.sample_threads.journal_sampling import Sampling
from monitoring.journal.alerts import Alerts, Severity
from monitoring.journal.files import AGENT_LOCK, ALERTS, host_of, of_host
from monitoring.journal.records import Record, as_number, read_records, seq_of
from monitoring.journal.tail import RecordTail

# Seconds that the end of a run waits for the last samples of other hosts.
LAST_SAMPLES = 15.0

# Fields of an alert that `Alerts.add` sets; the rest is copied.
ENVELOPE = frozenset({"event", "time", "seq", "attempt", "correlation_id", "rule", "severity", "message"})


class OtherHosts(Sampling):
    """The Sampling that other hosts' agents do; alerts.jsonl's one writer, this agent, adds their alerts."""

    def __init__(self, directory: Path, alerts: Alerts) -> None:
        super().__init__(directory, alerts)
        self._tails: dict[str, RecordTail] = {}
        self._ended_at = 0.0
        self._seqs = _taken_over(directory)

    def watch(self) -> None:
        """Read new records; once the end was requested, check whether all hosts have ended."""
        # before their alerts are read: the last ones of an agent that is gone are then among them
        gone = bool(self._ended_at) and not (self._are_sampling() and self._is_patient())
        for path in self._directory.glob(of_host(ALERTS, "*")):
            tail = self._tails.setdefault(path.name, RecordTail(path))
            for alert in tail.new():
                self._take(path.name, alert)
        if gone:
            self.done.set()

    def end(self) -> None:
        """Wait for the others from now on; a run on one host does not wait."""
        self._ended_at = self._ended_at or time.monotonic()
        if not self._are_sampling():
            self.watch()

    def _are_sampling(self) -> bool:
        return any(is_held(lock) for lock in self._directory.glob(of_host(AGENT_LOCK, "*")))

    def _is_patient(self) -> bool:
        return time.monotonic() - self._ended_at < LAST_SAMPLES

    def _take(self, name: str, alert: Record) -> None:
        seq = seq_of(alert)
        if seq <= self._seqs.get(name, 0):
            return
        self._seqs[name] = seq
        host = host_of(name, ALERTS) or ""
        fields = {key: value for key, value in alert.items() if key not in ENVELOPE}
        severity: Severity = alert["severity"]  # type: ignore[assignment]
        self._alerts.add(
            str(alert.get("rule")),
            severity,
            f"{host}: {alert.get('message')}",
            **{**fields, "subject": fields.get("subject") or host, "source": name, "source_seq": seq},
        )


def _taken_over(directory: Path) -> dict[str, int]:
    """Return the `seq` of the last alert copied from each other host's file."""
    found: dict[str, int] = {}
    for alert, _ in read_records(directory / ALERTS):
        if host_of(name := str(alert.get("source")), ALERTS):
            found[name] = max(found.get(name, 0), int(as_number(alert.get("source_seq")) or 0))
    return found
