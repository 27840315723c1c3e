"""GPUs that do not exist, for a demonstration: `make gputop SIMULATE=4`. No value of theirs is a measurement.

Each works in its own rhythm; of several one is hot, and of many one is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample
from monitoring.gpu.throttling import THROTTLE_REASONS

MOST = 64

NAME = "Simulated GPU"
MEMORY_MB = 81920.0
POWER_LIMIT_WATTS = 700.0

HOT, LOST = 1, 3
SLOWED_DOWN = THROTTLE_REASONS[0x020]

# Above every pid that Linux gives (PID_MAX_LIMIT in include/linux/threads.h), so that it is no process's.
FIRST_PID = 4_194_304


class SimulatedSampler:
    """A Sampler without a driver: its values are waves over time."""

    vendor = "simulated"

    def __init__(self, num_gpus: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`num_gpus` from 1 to MOST; `clock` gives seconds."""
        self.num_devices = num_gpus
        self._clock = clock
        self._devices = [DeviceInfo(index, None, NAME, "simulated") for index in range(num_gpus)]

    def devices(self) -> Sequence[DeviceInfo]:
        return self._devices

    def sample(self) -> Sequence[GpuSample]:
        now = self._clock()
        return [self._sample(device, now) for device in self._devices]

    def events(self) -> Sequence[GpuEvent]:
        return []

    def close(self) -> None:
        """There is no driver to let go of."""

    def _sample(self, device: DeviceInfo, now: float) -> GpuSample:
        gpu = device.index
        if gpu == LOST:
            return device.sample("lost", "GPU is lost (simulated)")
        rhythm, size = 7 + 3 * gpu % 11, gpu % 16
        used = _wave(now, 30_000 + 1500 * size, 61_000 + 500 * size, 60 + gpu)
        power = _wave(now, 180 + 10 * size, 560 + 8 * size, rhythm)
        is_hot = gpu == HOT
        return device.sample()._replace(
            utilization_percent=_wave(now, 55 + gpu % 3 * 10, 90 + gpu % 8, rhythm),
            memory_used_mb=used,
            memory_total_mb=MEMORY_MB,
            memory_free_mb=MEMORY_MB - used,
            memory_percent=100 * used / MEMORY_MB,
            temperature_celsius=_wave(now, 76, 86, 30)
            if is_hot
            else _wave(now, 52 + gpu % 5, 66 + gpu % 7, 40),
            power_draw_watts=power,
            power_average_watts=power,
            power_limit_watts=POWER_LIMIT_WATTS,
            throttle_reasons=[SLOWED_DOWN] if is_hot else [],
            processes=[
                {
                    "pid": FIRST_PID + gpu,
                    "name": "simulated",
                    "memory_mb": 28_000.0 + 1500 * size,
                    "sm_percent": 50.0 + gpu % 40,
                }
            ],
        )


def _wave(now: float, low: float, high: float, period: float) -> float:
    """A triangle wave between two values, `period` in seconds, as a whole number: drivers report those."""
    phase = now / period % 1
    return float(round(low + (high - low) * (1 - abs(2 * phase - 1))))
