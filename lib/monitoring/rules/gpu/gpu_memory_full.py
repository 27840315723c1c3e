"""Alert rule: a GPU's memory is full but for a few percent: the next larger batch is an out-of-memory error.

Method: a limit with a hold, above that of `gpu_memory`, and an error where that is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding
from monitoring.rules.gpu import gpu_memory

EVENTS = ("gpu",)

UNIT = "%"

LOOK = "the batch size, and at other processes on the GPU (nvidia-smi)"


@dataclass(frozen=True)
class Options:
    """When memory is full."""

    limit: float
    """Percent of the GPU's memory that may be in use."""
    seconds: float


class Rule:
    """Reports each GPU of which more memory than the limit has been in use for some time."""

    severity: Severity = "error"

    def __init__(self, options: Options) -> None:
        self.hold = options.seconds
        self._rule = gpu_memory.Rule(gpu_memory.Options(options.limit, options.seconds))

    def update(self, record: Record) -> Sequence[Finding]:
        return self._rule.update(record)
