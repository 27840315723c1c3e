"""Alert rule: a GPU is hot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number
from monitoring.rules.gpu._samples import gpu_name, gpus

EVENTS = ("gpu",)

UNIT = " °C"

LOOK = "its fans, the air around it and its power limit"


@dataclass(frozen=True)
class Options:
    """When a GPU is hot."""

    limit: float
    """Degrees Celsius that it may have."""
    seconds: float


class Rule:
    """Warns of each GPU whose core has been hotter than the limit for some time."""

    severity: Severity = "warning"

    def __init__(self, options: Options) -> None:
        self.hold = options.seconds
        self._limit = options.limit

    def update(self, record: Record) -> Sequence[Finding]:
        return [
            Finding(
                value > self._limit,
                f"{gpu_name(sample)} is hotter than {self._limit:g} °C",
                name,
                value,
                limit=self._limit,
            )
            for name, sample in gpus(record)
            if (value := number(sample, "temperature_celsius")) is not None
        ]
