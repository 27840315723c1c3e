"""How a run's GPUs are sampled: what its configuration says, and what run.json keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from monitoring.errors import FollowerOptionsError

# The symbol of each option in a configuration.
SYMBOLS = {
    "interval": "GPU_MONITOR_INTERVAL",
    "hour_price": "GPU_HOUR_PRICE",
    "file_mb": "GPU_STATS_FILE_MB",
    "files": "GPU_STATS_FILES",
}


@dataclass(frozen=True)
class GpuMonitorOptions:
    """What `Run(gpu_monitor=...)` takes as a mapping; True is all defaults."""

    interval: float = 1.0
    """Seconds between two samples."""
    hour_price: float = 0.0
    """What one GPU costs an hour, in the user's currency; 0: no cost is reported."""
    file_mb: int = 64
    """MiB from which on gpu_stats.jsonl is moved aside."""
    files: int = 16
    """As many times `file_mb` may all files of samples take, compressed ones included."""


def gpu_monitor_options(asked: bool | Mapping[str, Any]) -> GpuMonitorOptions | None:
    """None if no samples are requested; FollowerOptionsError for an unknown option."""
    if isinstance(asked, bool):
        return GpuMonitorOptions() if asked else None
    known = [field.name for field in fields(GpuMonitorOptions)]
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise FollowerOptionsError(
            f"gpu_monitor has no option {unknown[0]!r}", hint="its options: " + ", ".join(known)
        )
    options = GpuMonitorOptions(**asked)
    if options.interval <= 0 or options.file_mb < 1 or options.files < 1:
        raise FollowerOptionsError("gpu_monitor: interval, file_mb and files are above 0")
    return options


def configured_gpu_monitor(config: Mapping[str, Any]) -> bool | dict[str, Any]:
    """What a configuration asks for, as `Run` takes it: False without GPU_MONITOR."""
    if not config.get("GPU_MONITOR"):
        return False
    given = {name: config[symbol] for name, symbol in SYMBOLS.items() if symbol in config}
    return {**asdict(GpuMonitorOptions()), **given}
