"""Alert rule: the machine's memory is nearly full, or in a container what that may use.

Method: a limit with a hold, as of a GPU's memory. When it is reached, the kernel kills a process of the
training. Needs MACHINE_MONITOR.
"""

from __future__ import annotations

from monitoring.rules._measures.limits import LimitOptions, LimitRule

EVENTS = ("system",)

UNIT = "%"

LOOK = "which processes hold it: the kernel kills one when it is full"

Options = LimitOptions


class Rule(LimitRule):
    """Warns of each host of which more memory than the limit (percent) has been in use for some time."""

    field = "memory_usage_percent"
    text = "{subject}: more than {limit}% of the memory is in use"
