"""Alert rule: a GPU has little to do while its run trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number
from monitoring.rules.gpu._samples import gpu_name, gpus

EVENTS = ("gpu",)

UNIT = "%"

LOOK = "data_seconds of the step records: the GPU may wait for its data"


@dataclass(frozen=True)
class Options:
    """When a GPU has little to do."""

    limit: float
    """Percent of the time in which a kernel should run at the least."""
    seconds: float
    """Long enough for a start, a validation and a checkpoint."""


class Rule:
    """Warns of each GPU that has been below the limit for some time; only running trainings are sampled."""

    severity: Severity = "warning"

    def __init__(self, options: Options) -> None:
        self.hold = options.seconds
        self._limit = options.limit

    def update(self, record: Record) -> Sequence[Finding]:
        return [
            Finding(
                value < self._limit,
                f"{gpu_name(sample)} is used less than {self._limit:g}%",
                name,
                value,
                limit=self._limit,
            )
            for name, sample in gpus(record)
            if (value := number(sample, "utilization_percent")) is not None
        ]
