"""Alert rule: a GPU answers, but gives nothing.

Method: what its driver says at each sample, without a limit: an error of NVML (nvml.h) that says nothing of a
lost device, or of AMD and Intel no file in sysfs that gives a value.
"""

from __future__ import annotations

from monitoring.no_options import NoOptions
from monitoring.rules.gpu._samples import StateRule

EVENTS = ("gpu",)

LOOK = "the driver: nvidia-smi (rocm-smi, xpu-smi) and the kernel log (dmesg)"

Options = NoOptions


class Rule(StateRule):
    """Reports each GPU that cannot be read, until it can; all of a host at once are one alert."""

    state = "error"
