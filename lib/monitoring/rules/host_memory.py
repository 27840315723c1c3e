"""Alert rule: the machine's memory is nearly full, or in a container what that may use.

Method: a limit with a hold, as of a GPU's memory. When it is reached, the kernel kills a process of the
training. Needs MACHINE_MONITOR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, host_of, number

EVENTS = ("system",)

UNIT = "%"

LOOK = "which processes hold it: the kernel kills one when it is full"


@dataclass(frozen=True)
class Options:
    """When memory is nearly full."""

    limit: float
    """Percent that may be in use."""
    seconds: float


class Rule:
    """Warns of each host of which more memory than the limit has been in use for some time."""

    severity: Severity = "warning"

    def __init__(self, options: Options) -> None:
        self.hold = options.seconds
        self._limit = options.limit
        self._message = f"more than {options.limit:g}% of the memory is in use"

    def update(self, record: Record) -> Sequence[Finding]:
        share = number(record, "memory_usage_percent")
        if share is None:
            return ()
        host = host_of(record)
        return [Finding(share > self._limit, f"{host}: {self._message}", host, share, limit=self._limit)]
