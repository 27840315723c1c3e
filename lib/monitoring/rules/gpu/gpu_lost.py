"""Alert rule: a GPU that was there does not answer any more.

Method: what its driver says at each sample, without a limit: NVML_ERROR_GPU_IS_LOST ("The GPU has fallen off
the bus or has otherwise become inaccessible", nvml.h), or of AMD and Intel a device that is gone from sysfs.
"""

from __future__ import annotations

from monitoring.no_options import NoOptions
from monitoring.rules.gpu._samples import StateRule

EVENTS = ("gpu",)

LOOK = "the driver: nvidia-smi (rocm-smi, xpu-smi) and the kernel log (dmesg)"

Options = NoOptions


class Rule(StateRule):
    """Reports each GPU that is lost, until it answers again; all of a host at once are one alert."""

    state = "lost"
