"""Alert rule: the training does not get on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.files import SAMPLES
from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number

UNIT = " s"

LOOK = "its output and where it hangs (py-spy dump); what hangs may need kill -9"


@dataclass(frozen=True)
class Options:
    """When a training hangs."""

    seconds: float
    """Seconds without a record while it should train; above its longest step, validation and checkpoint."""


class Rule(RuleDefaults):
    """Warns when a running training has recorded nothing for too long, until it records something."""

    severity: Severity = "error"

    def __init__(self, options: Options) -> None:
        self._seconds = options.seconds
        self._message = f"no step for {options.seconds:g} s"
        self._last: float | None = None
        self._waiting = False

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") in SAMPLES:
            return ()
        before, self._last = self._last, number(record, "time")
        self._waiting = record.get("event") != "end"
        if before is None or self._last is None:
            return ()
        return [Finding(False, self._message, value=max(0.0, self._last - before))]

    def tick(self, now: float) -> Sequence[Finding]:
        if not self._waiting or self._last is None:
            return ()
        self._last = min(self._last, now)  # the clock was set back: it counts from here on
        if now - self._last <= self._seconds:
            return ()
        return [Finding(True, self._message, value=now - self._last, limit=self._seconds)]
