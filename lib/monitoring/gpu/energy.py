"""Energy, GPU hours and cost of a run: what all its GPUs used since it began, over all of its attempts.

Where a GPU has an energy counter, the differences of the counter count, also over seconds in which nobody
sampled; else power is integrated between samples, and seconds in which nobody sampled stay unmeasured. What
the GPUs use between two attempts is not the run's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from monitoring.gpu.sample import GpuSample

Source = Literal["counter", "integrated"]

# Two samples further apart than this many intervals, and than this many seconds, leave a gap between them.
GAP_INTERVALS = 3.0
GAP_SECONDS = 5.0


@dataclass
class _GpuEnergy:
    """What one GPU has used, and its last sample in this attempt."""

    joules: float | None = None
    source: Source | None = None
    counter: float | None = None
    power: float | None = None
    bridged: float = 0.0
    """Joules integrated since the counter was last read, which its next value includes."""


class EnergyMeter:
    """Adds up what the samples of one run say. Make a new one for each attempt with what the last one had."""

    def __init__(self, *, hour_price: float = 0.0, interval: float = 1.0, started: float) -> None:
        """`hour_price` is that of one GPU for one hour, 0 for none; `started` when the attempt began.

        Times are in seconds of one clock that every call uses.
        """
        self._price = hour_price
        self._longest = max(GAP_INTERVALS * interval, GAP_SECONDS)
        self._time = started
        self._gpus: dict[str, _GpuEnergy] = {}
        self._elsewhere: float | None = None  # joules of GPUs that this attempt does not have
        self._gpu_seconds = 0.0
        self._unmeasured = 0.0

    def resume(self, record: Mapping[str, Any], *, same_attempt: bool) -> None:
        """Continue after the run's last gpu record; of the same attempt, what its counters said counts."""
        totals = record["aggregate_stats"]
        self._gpu_seconds = 3600.0 * (totals["gpu_hours"] or 0.0)
        self._unmeasured = totals["unmeasured_seconds"] or 0.0
        for gpu in record["multi_gpu_data"]:
            state = _GpuEnergy(gpu["energy_joules"], gpu["energy_source"])
            if same_attempt:
                state.counter = gpu["energy_counter_joules"]
                state.power = gpu["power_draw_watts"]
            self._gpus[_key(gpu["uuid"], gpu["index"])] = state
        if totals["energy_joules"] is not None:
            here = sum(gpu.joules or 0.0 for gpu in self._gpus.values())
            self._elsewhere = max(0.0, totals["energy_joules"] - here) or None
        if same_attempt:
            self._time = record["time"]

    def measure(self, samples: Sequence[GpuSample], now: float) -> tuple[list[GpuSample], dict[str, Any]]:
        """The samples with `energy_joules` and its source filled in, and the totals of the run."""
        seconds = max(0.0, now - self._time)
        self._time = now
        self._gpu_seconds += seconds * len(samples)
        is_gap = seconds > self._longest
        if is_gap:
            self._unmeasured += seconds
        measured = []
        for sample in samples:
            gpu = self._gpus.setdefault(_key(sample.uuid, sample.index), _GpuEnergy())
            _add(gpu, sample, seconds, is_gap=is_gap)
            measured.append(sample._replace(energy_joules=gpu.joules, energy_source=gpu.source))
        return measured, self._totals()

    def _totals(self) -> dict[str, Any]:
        known = [gpu.joules for gpu in self._gpus.values() if gpu.joules is not None]
        if self._elsewhere is not None:
            known.append(self._elsewhere)
        sources = sorted({gpu.source for gpu in self._gpus.values() if gpu.source is not None})
        hours = self._gpu_seconds / 3600
        return {
            "energy_joules": sum(known) if known else None,
            "energy_source": "+".join(sources) or None,
            "gpu_hours": hours,
            "cost": hours * self._price if self._price else None,
            "unmeasured_seconds": self._unmeasured,
        }


def _add(gpu: _GpuEnergy, sample: GpuSample, seconds: float, *, is_gap: bool) -> None:
    """Add what a GPU used since its last sample."""
    counter, power = sample.energy_counter_joules, sample.power_draw_watts
    if counter is not None:
        gpu.source = "counter"
        used = counter - gpu.counter if gpu.counter is not None else 0.0
        # a counter that fell was reset with its driver; what it had counted since is unknown
        gpu.joules = (gpu.joules or 0.0) + max(0.0, used - gpu.bridged)
        gpu.counter, gpu.bridged = counter, 0.0
    elif power is not None:
        gpu.source = "integrated"
        used = (gpu.power + power) / 2 * seconds if gpu.power is not None and not is_gap else 0.0
        gpu.joules = (gpu.joules or 0.0) + used
        gpu.bridged += used if gpu.counter is not None else 0.0
    if sample.state == "ok":
        gpu.power = power
    elif counter is None:
        gpu.power = None  # nothing is known of the time until it comes back, unless a counter says


def _key(uuid: str | None, index: int) -> str:
    return uuid if uuid is not None else f"#{index}"
