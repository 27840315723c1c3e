"""The training waits for its data."""

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number


@dataclass(frozen=True)
class Options:
    """When data is late."""

    limit: float
    """Seconds that a step may wait for its batch."""


class Rule:
    """Warns when steps wait for their batch longer than the limit."""

    severity: Severity = "warning"
    hold = 60.0

    def __init__(self, options: Options) -> None:
        self._limit = options.limit

    def update(self, record: Record) -> Sequence[Finding]:
        waited = number(record, "data_seconds")
        if waited is None:
            return []
        return [Finding(waited > self._limit, f"steps wait over {self._limit:g} s for data", value=waited)]
