"""A GPU answers, but gives nothing.

Method: what its driver says at each sample, without a limit: an error of NVML (nvml.h) that says nothing of a
lost device, or of AMD and Intel no file in sysfs that gives a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding
from monitoring.rules._measures.gpus import in_state

EVENTS = ("gpu",)


@dataclass(frozen=True)
class Options:
    """It has none."""


class Rule:
    """Reports each GPU that cannot be read, until it can; all of a host at once are one alert."""

    severity: Severity = "error"
    hold = 0.0

    def __init__(self, options: Options) -> None: ...

    def update(self, record: Record) -> Sequence[Finding]:
        return in_state(record, "error")
