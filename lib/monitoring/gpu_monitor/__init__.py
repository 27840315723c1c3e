"""Watch GPUs next to any training; `python -m monitoring.gpu_monitor` prints lines."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitoring.gpu_monitor.monitor import GpuIndex, GPUMonitor, TrainingMonitorCallback, sample_line

__all__ = ["GPUMonitor", "GpuIndex", "TrainingMonitorCallback", "sample_line"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.monitor"), name)
