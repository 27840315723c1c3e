"""Alert rule: the disk of the run is nearly full.

Method: a limit with a hold, on the percentage in use or on what is left, whichever is reached first: a
checkpoint needs its bytes, however large the disk is. Needs MACHINE_MONITOR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, host_of, number

EVENTS = ("system",)

UNIT = " GB free"

LOOK = "what fills it: old runs and checkpoints (du -sh {directory}/../*)"

SECONDS = 10.0


@dataclass(frozen=True)
class Options:
    """When a disk is nearly full."""

    limit: float
    """Percent that may be in use."""
    free_gb: float
    """GB (1e9 bytes) that should be free at the least."""


class Rule:
    """Warns of each host whose file system of the run directory is full, or has little left."""

    severity: Severity = "error"
    hold = SECONDS

    def __init__(self, options: Options) -> None:
        self._options = options
        self._message = (
            f"the disk of the run directory is more than {options.limit:g}% full or has less than "
            f"{options.free_gb:g} GB left"
        )

    def update(self, record: Record) -> Sequence[Finding]:
        share, free = number(record, "disk_usage_percent"), number(record, "disk_free_gb")
        if share is None or free is None:
            return ()
        host = host_of(record)
        is_full = share > self._options.limit or free < self._options.free_gb
        return [Finding(is_full, f"{host}: {self._message}", host, free)]
