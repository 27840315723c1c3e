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
    """Options of `Run(machine_monitor=...)`, given as a mapping; True is all defaults."""

    interval: float = 1.0
    """Seconds between two samples."""
    file_mb: int = 16
    """Size of system_stats.jsonl, in MiB, from which on it is moved aside."""
    files: int = 8
    """How many times `file_mb` all files of samples may take, compressed ones included."""


def machine_monitor_options(asked: bool | Mapping[str, Any]) -> MachineMonitorOptions | None:
    """Return the options, None if no samples are requested; FollowerOptionsError for an unknown one."""
    return monitor_options("machine_monitor", MachineMonitorOptions, asked)


def configured_machine_monitor(config: Mapping[str, Any]) -> bool | dict[str, Any]:
    """Return the options of a configuration as `Run` takes them: False without MACHINE_MONITOR."""
    return configured_monitor("MACHINE_MONITOR", MachineMonitorOptions, SYMBOLS, config)
