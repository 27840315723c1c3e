"""The gradient has exploded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number

EVENTS = ("step",)

# Step records below the limit after which an explosion is over: they come in bursts.
QUIET_RECORDS = 50


@dataclass(frozen=True)
class Options:
    """When a gradient has exploded."""

    limit: float = 10.0
    """The 2-norm that the gradients of a step may have."""


class Rule:
    """Warns at the first step above the limit, until QUIET_RECORDS in a row are not."""

    severity: Severity = "warning"
    hold = 0.0

    def __init__(self, options: Options) -> None:
        self._limit = options.limit
        self._message = f"the gradient norm is above {options.limit:g}"
        self._quiet = QUIET_RECORDS

    def update(self, record: Record) -> Sequence[Finding]:
        norm = number(record, "grad_norm")
        if norm is None:
            return ()
        self._quiet = 0 if norm > self._limit else self._quiet + 1
        return [Finding(self._quiet < QUIET_RECORDS, self._message, value=norm)]
