"""Alert rule: a GPU's memory is nearly full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number
from monitoring.rules.gpu._samples import gpu_name, gpus

EVENTS = ("gpu",)

UNIT = "%"

LOOK = "the batch size, and at other processes on the GPU (nvidia-smi)"


@dataclass(frozen=True)
class Options:
    """When memory is nearly full."""

    limit: float
    """Percent of the GPU's memory that may be in use."""
    seconds: float


class Rule:
    """Warns of each GPU of which more memory than the limit has been in use for some time."""

    severity: Severity = "warning"

    def __init__(self, options: Options) -> None:
        self.hold = options.seconds
        self._limit = options.limit

    def update(self, record: Record) -> Sequence[Finding]:
        message = f"more than {self._limit:g}% of its memory is in use"
        found = []
        for name, sample in gpus(record):
            used, total = number(sample, "memory_used_mb"), number(sample, "memory_total_mb")
            if used is not None and total:
                share = 100.0 * used / total
                found.append(
                    Finding(
                        share > self._limit, f"{gpu_name(sample)}: {message}", name, share, limit=self._limit
                    )
                )
        return found
