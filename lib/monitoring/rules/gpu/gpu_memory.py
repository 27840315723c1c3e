"""Alert rule: a GPU's memory is nearly full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitoring.rules import number
from monitoring.rules._measures.limits import LimitOptions
from monitoring.rules.gpu._samples import GpuLimitRule

EVENTS = ("gpu",)

UNIT = "%"

LOOK = "the batch size, and at other processes on the GPU (nvidia-smi)"

Options = LimitOptions


class Rule(GpuLimitRule):
    """Warns of each GPU of which more memory than the limit (percent) has been in use for some time."""

    field = "memory_used_mb"
    text = "{subject}: more than {limit}% of its memory is in use"

    def value(self, sample: Mapping[str, Any]) -> float | None:
        """Return the percentage of the GPU's memory that is in use."""
        used, total = super().value(sample), number(sample, "memory_total_mb")
        return 100.0 * used / total if used is not None and total else None
