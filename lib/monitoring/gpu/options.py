"""How a run's GPUs are sampled: what its configuration says, and what run.json keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, TypeVar

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
    return monitor_options("gpu_monitor", GpuMonitorOptions, asked)


def configured_gpu_monitor(config: Mapping[str, Any]) -> bool | dict[str, Any]:
    """What a configuration asks for, as `Run` takes it: False without GPU_MONITOR."""
    return configured_monitor("GPU_MONITOR", GpuMonitorOptions, SYMBOLS, config)


class _Sampled(Protocol):
    """What the options of anything that an agent samples have."""

    @property
    def interval(self) -> float: ...
    @property
    def file_mb(self) -> int: ...
    @property
    def files(self) -> int: ...


S = TypeVar("S", bound=_Sampled)


def monitor_options(name: str, kind: Callable[..., S], asked: bool | Mapping[str, Any]) -> S | None:
    """The options of a monitor, whose argument of `Run` is `name`; errors as of `gpu_monitor_options`."""
    if isinstance(asked, bool):
        return kind() if asked else None
    known = [field.name for field in fields(kind())]  # type: ignore[arg-type]
    unknown = [option for option in asked if option not in known]
    if unknown:
        raise FollowerOptionsError(
            f"{name} has no option {unknown[0]!r}", hint="its options: " + ", ".join(known)
        )
    options = kind(**asked)
    if options.interval <= 0 or options.file_mb < 1 or options.files < 1:
        raise FollowerOptionsError(f"{name}: interval, file_mb and files are above 0")
    return options


def configured_monitor(
    switch: str, kind: Callable[[], Any], symbols: Mapping[str, str], config: Mapping[str, Any]
) -> bool | dict[str, Any]:
    """The options of a monitor that the symbol `switch` turns on; `symbols` gives each option's."""
    if not config.get(switch):
        return False
    return {**asdict(kind()), **{name: config[it] for name, it in symbols.items() if it in config}}
