"""Alert rule: a tracker lacks what was recorded a while ago, whether it fails, hangs or is too slow.

Method: the last record that the tracker has safely, against the last one of `SECONDS` ago. The CSV and the
exporters count as trackers here. Of one that has been watched for less than `SECONDS` nothing is known: an
agent that is started again has the records of the time without one to deliver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitoring.journal.files import AGENT_LOG, FOLLOWERS_JSON, SAMPLES
from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number

# Parts of `SECONDS`, for each of which one record is remembered.
PARTS = 60

UNIT = " records"

LOOK = f"{FOLLOWERS_JSON} and {AGENT_LOG}, then deliver the rest by make sync"


@dataclass(frozen=True)
class Options:
    """When a tracker is behind."""

    seconds: float
    """Seconds within which every record should be in the tracker."""


class Rule(RuleDefaults):
    """Warns of each tracker that lacks old records, with the number of all it lacks, until it has them."""

    def __init__(self, options: Options) -> None:
        self._seconds = options.seconds
        self._marks: deque[tuple[float, int]] = deque()
        """Time and seq of records; of those older than `seconds` only the last."""
        self._newest = 0
        self._watched: dict[str, float] = {}
        """Tracker -> since when it has been watched."""

    def update(self, record: Record) -> Sequence[Finding]:
        time, seq = number(record, "time"), number(record, "seq")
        if time is None or seq is None or record.get("event") in SAMPLES:
            return ()
        self._newest = int(seq)
        if not self._marks or not 0 <= time - self._marks[-1][0] < self._seconds / PARTS:
            self._forget(time)
            self._marks.append((time, self._newest))
        return ()

    def update_followers(self, now: float, delivered: Mapping[str, int]) -> Sequence[Finding]:
        self._forget(now)
        time, seq = self._marks[0] if self._marks else (now, 0)
        old = seq if now - time > self._seconds else 0
        findings = []
        for name, has in delivered.items():
            since = self._watched[name] = min(now, self._watched.get(name, now))  # the clock was set back
            if has >= old or now - since > self._seconds:
                message = f"{name} lacks records that are older than {self._seconds:g} s"
                findings.append(Finding(has < old, message, name, float(self._newest - has)))
        return findings

    def _forget(self, now: float) -> None:
        while len(self._marks) > 1 and now - self._marks[1][0] > self._seconds:
            self._marks.popleft()
