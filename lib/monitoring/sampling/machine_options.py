"""How the machine is sampled: what a run's configuration says, and what run.json keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitoring.gpu.options import configured_monitor, monitor_options

# The symbol of each option in a configuration.
SYMBOLS = {
    "interval": "MACHINE_MONITOR_INTERVAL",
    "file_mb": "SYSTEM_STATS_FILE_MB",
    "files": "SYSTEM_STATS_FILES",
}


@dataclass(frozen=True)
class MachineMonitorOptions:
    """What `Run(machine_monitor=...)` takes as a mapping; True is all defaults."""

    interval: float = 1.0
    """Seconds between two samples."""
    file_mb: int = 16
    """MiB from which on system_stats.jsonl is moved aside."""
    files: int = 8
    """As many times `file_mb` may all files of samples take, compressed ones included."""


def machine_monitor_options(asked: bool | Mapping[str, Any]) -> MachineMonitorOptions | None:
    """None if no samples are requested; FollowerOptionsError for an unknown option."""
    return monitor_options("machine_monitor", MachineMonitorOptions, asked)


def configured_machine_monitor(config: Mapping[str, Any]) -> bool | dict[str, Any]:
    """What a configuration asks for, as `Run` takes it: False without MACHINE_MONITOR."""
    return configured_monitor("MACHINE_MONITOR", MachineMonitorOptions, SYMBOLS, config)
