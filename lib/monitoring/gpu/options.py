"""How GPUs and the machine are sampled: what a run's configuration says, and what run.json keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from monitoring.errors import FollowerOptionsError

# The symbol of each option in a configuration.
GPU_SYMBOLS = {
    "interval": "GPU_MONITOR_INTERVAL",
    "hour_price": "GPU_HOUR_PRICE",
    "file_mb": "GPU_STATS_FILE_MB",
    "files": "GPU_STATS_FILES",
}
MACHINE_SYMBOLS = {
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


@dataclass(frozen=True)
class GpuMonitorOptions(MachineMonitorOptions):
    """Options of `Run(gpu_monitor=...)` in the same way; the file is gpu_stats.jsonl."""

    file_mb: int = 64
    files: int = 16
    hour_price: float = 0.0
    """Price of one GPU per hour, in the user's currency; 0: no cost is reported."""


Kind = TypeVar("Kind", bound=MachineMonitorOptions)


def gpu_monitor_options(asked: bool | Mapping[str, Any]) -> GpuMonitorOptions | None:
    """Return the options, None if no samples are requested; FollowerOptionsError for an unknown one."""
    return _options("gpu_monitor", GpuMonitorOptions, asked)


def machine_monitor_options(asked: bool | Mapping[str, Any]) -> MachineMonitorOptions | None:
    """Return those of the machine in the same way."""
    return _options("machine_monitor", MachineMonitorOptions, asked)


def configured_gpu_monitor(config: Mapping[str, Any]) -> bool | dict[str, Any]:
    """Return the options of a configuration as `Run` takes them: False without GPU_MONITOR."""
    return _configured("GPU_MONITOR", GpuMonitorOptions(), GPU_SYMBOLS, config)


def configured_machine_monitor(config: Mapping[str, Any]) -> bool | dict[str, Any]:
    """Return the options of a configuration as `Run` takes them: False without MACHINE_MONITOR."""
    return _configured("MACHINE_MONITOR", MachineMonitorOptions(), MACHINE_SYMBOLS, config)


def _options(name: str, kind: type[Kind], asked: bool | Mapping[str, Any]) -> Kind | None:
    if isinstance(asked, bool):
        return kind() if asked else None
    known = [field.name for field in fields(kind)]
    unknown = [option for option in asked if option not in known]
    if unknown:
        raise FollowerOptionsError(
            f"{name} has no option {unknown[0]!r}", hint="its options: " + ", ".join(known)
        )
    options = kind(**asked)
    if options.interval <= 0 or options.file_mb < 1 or options.files < 1:
        raise FollowerOptionsError(f"{name}: interval, file_mb and files are above 0")
    return options


def _configured(
    switch: str,
    defaults: MachineMonitorOptions,
    symbols: Mapping[str, str],
    config: Mapping[str, Any],
) -> bool | dict[str, Any]:
    if not config.get(switch):
        return False
    return {**asdict(defaults), **{name: config[it] for name, it in symbols.items() if it in config}}
