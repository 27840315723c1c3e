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
    """Options of `Run(gpu_monitor=...)`, given as a mapping; True is all defaults."""

    interval: float = 1.0
    """Seconds between two samples."""
    hour_price: float = 0.0
    """Price of one GPU per hour, in the user's currency; 0: no cost is reported."""
    file_mb: int = 64
    """Size of gpu_stats.jsonl, in MiB, from which on it is moved aside."""
    files: int = 16
    """How many times `file_mb` all files of samples may take, compressed ones included."""


def gpu_monitor_options(asked: bool | Mapping[str, Any]) -> GpuMonitorOptions | None:
    """Return the options, None if no samples are requested; FollowerOptionsError for an unknown one."""
    return monitor_options("gpu_monitor", GpuMonitorOptions, asked)


def configured_gpu_monitor(config: Mapping[str, Any]) -> bool | dict[str, Any]:
    """Return the options of a configuration as `Run` takes them: False without GPU_MONITOR."""
    return configured_monitor("GPU_MONITOR", GpuMonitorOptions, SYMBOLS, config)


class _Sampled(Protocol):
    """Options of anything that an agent samples."""

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
    """Return the options of a monitor that the symbol `switch` turns on; `symbols` gives each option's."""
    if not config.get(switch):
        return False
    return {**asdict(kind()), **{name: config[it] for name, it in symbols.items() if it in config}}
