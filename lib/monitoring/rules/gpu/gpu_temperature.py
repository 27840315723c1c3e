"""Alert rule: a GPU is hot."""

from __future__ import annotations

from monitoring.rules._measures.limits import LimitOptions
from monitoring.rules.gpu._samples import GpuLimitRule

EVENTS = ("gpu",)

UNIT = " °C"

LOOK = "its fans, the air around it and its power limit"

Options = LimitOptions


class Rule(GpuLimitRule):
    """Warns of each GPU whose core has been hotter than the limit (degrees Celsius) for some time."""

    field = "temperature_celsius"
    text = "{subject} is hotter than {limit} °C"
