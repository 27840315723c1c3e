"""The last samples of some GPUs, and what each metric was over them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from monitoring.gpu.sample import Snapshot

# The fields of a sample that statistics are made of.
METRICS = (
    *("utilization_percent", "memory_utilization_percent", "memory_used_mb", "memory_percent"),
    *("temperature_celsius", "temperature_memory_celsius", "power_draw_watts", "fan_speed_percent"),
    *("clock_sm_mhz", "clock_memory_mhz"),
    *("sm_activity_percent", "tensor_activity_percent", "dram_activity_percent"),
)


class Statistics(NamedTuple):
    """A metric of one GPU over the history, in the metric's unit."""

    mean: float
    min: float
    max: float
    last: float
    """The newest value that was reported."""


class GpuHistory:
    """A fixed number of snapshots; one thread adds, any may read."""

    def __init__(self, size: int) -> None:
        self._snapshots: deque[Snapshot] = deque(maxlen=size)

    def add(self, *snapshots: Snapshot) -> None:
        self._snapshots += snapshots

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots, oldest first."""
        return list(self._snapshots.copy())

    @property
    def latest(self) -> Snapshot | None:
        try:
            return self._snapshots[-1]
        except IndexError:
            return None

    def statistics(self) -> dict[int, dict[str, Statistics]]:
        """GPU index -> metric -> its statistics; a metric that was never reported is not there."""
        values: dict[int, dict[str, list[float]]] = {}
        for snapshot in self.snapshots():
            for sample in snapshot.gpus:
                of_gpu = values.setdefault(sample.index, {})
                for metric in METRICS:
                    value = getattr(sample, metric)
                    if value is not None:
                        of_gpu.setdefault(metric, []).append(value)
        return {
            index: {metric: statistics(found) for metric, found in of_gpu.items()}
            for index, of_gpu in sorted(values.items())
        }


def statistics(values: Sequence[float]) -> Statistics:
    """Return the statistics of at least one value."""
    return Statistics(sum(values) / len(values), min(values), max(values), values[-1])
