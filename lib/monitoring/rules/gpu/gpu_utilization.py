"""Alert rule: a GPU has little to do while its run trains."""

from __future__ import annotations

from monitoring.rules._measures.limits import LimitOptions
from monitoring.rules.gpu._samples import GpuLimitRule

EVENTS = ("gpu",)

UNIT = "%"

LOOK = "data_seconds of the step records: the GPU may wait for its data"

Options = LimitOptions


class Rule(GpuLimitRule):
    """Warns of each GPU that has been below the limit for some time; only running trainings are sampled.

    The limit is the percent of the time in which a kernel runs; the seconds are enough for a start, a
    validation and a checkpoint.
    """

    field = "utilization_percent"
    side = "below"
    text = "{subject} is used less than {limit}%"
