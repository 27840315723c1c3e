"""A GPU that was there does not answer any more.

Method: what its driver says at each sample, without a limit: NVML_ERROR_GPU_IS_LOST ("The GPU has fallen off
the bus or has otherwise become inaccessible", nvml.h), or of AMD and Intel a device that is gone from sysfs.
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
    """Reports each GPU that is lost, until it answers again; all of a host at once are one alert."""

    severity: Severity = "error"
    hold = 0.0

    def __init__(self, options: Options) -> None: ...

    def update(self, record: Record) -> Sequence[Finding]:
        return in_state(record, "lost")
