"""How GPUs and the machine are sampled: what a run's configuration says, and what run.json keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from monitoring.errors import FollowerOptionsError


@dataclass(frozen=True)
class MachineMonitorOptions:
    """Options of `Run(machine_monitor=...)`, given as a mapping; True is all defaults."""

    interval: float = 1.0
    """Seconds between two samples."""
    file_mb: int = 16
    """Size of system_stats.jsonl, in MiB, from which on it is moved aside."""
    files: int = 8
    """How many times `file_mb` all files of samples may take, compressed ones included."""

    NAME: ClassVar = "machine_monitor"
    SYMBOLS: ClassVar[Mapping[str, str]] = {
        "interval": "MACHINE_MONITOR_INTERVAL",
        "file_mb": "SYSTEM_STATS_FILE_MB",
        "files": "SYSTEM_STATS_FILES",
    }
    """Symbol of each option in a configuration."""

    @classmethod
    def asked(cls, asked: bool | Mapping[str, Any]) -> Self | None:
        """Return the options, None if no samples are requested; FollowerOptionsError for an unknown one."""
        if isinstance(asked, bool):
            return cls() if asked else None
        known = [field.name for field in fields(cls)]
        unknown = [option for option in asked if option not in known]
        if unknown:
            raise FollowerOptionsError(
                f"{cls.NAME} has no option {unknown[0]!r}", hint="its options: " + ", ".join(known)
            )
        options = cls(**asked)
        if options.interval <= 0 or options.file_mb < 1 or options.files < 1:
            raise FollowerOptionsError(f"{cls.NAME}: interval, file_mb and files are above 0")
        return options

    @classmethod
    def in_full(cls, asked: bool | Mapping[str, Any]) -> bool | dict[str, Any]:
        """Return what `Run` was asked, defaults included, as run.json has it: False for no samples."""
        options = cls.asked(asked)
        return False if options is None else asdict(options)

    @classmethod
    def configured(cls, config: Mapping[str, Any]) -> bool | dict[str, Any]:
        """Return the options of a configuration as `Run` takes them: False without GPU_MONITOR and so on."""
        if not config.get(cls.NAME.upper()):
            return False
        return {**asdict(cls()), **{name: config[it] for name, it in cls.SYMBOLS.items() if it in config}}


@dataclass(frozen=True)
class GpuMonitorOptions(MachineMonitorOptions):
    """Options of `Run(gpu_monitor=...)` in the same way; the file is gpu_stats.jsonl."""

    file_mb: int = 64
    files: int = 16
    hour_price: float = 0.0
    """Price of one GPU per hour, in the user's currency; 0: no cost is reported."""

    NAME: ClassVar = "gpu_monitor"
    SYMBOLS: ClassVar[Mapping[str, str]] = {
        "interval": "GPU_MONITOR_INTERVAL",
        "hour_price": "GPU_HOUR_PRICE",
        "file_mb": "GPU_STATS_FILE_MB",
        "files": "GPU_STATS_FILES",
    }
