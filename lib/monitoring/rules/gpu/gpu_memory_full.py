"""Alert rule: a GPU's memory is full but for a few percent: the next larger batch is an out-of-memory error.

Method: a limit with a hold, above that of `gpu_memory`, and an error where that is a warning.
"""

from __future__ import annotations

from monitoring.journal.alerts import Severity
from monitoring.rules._measures.limits import LimitOptions
from monitoring.rules.gpu import gpu_memory

EVENTS, UNIT, LOOK = gpu_memory.EVENTS, gpu_memory.UNIT, gpu_memory.LOOK

Options = LimitOptions


class Rule(gpu_memory.Rule):
    """Reports each GPU of which more memory than the limit (percent) has been in use for some time."""

    severity: Severity = "error"
