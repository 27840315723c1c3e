"""Measures the pace of a training between two records, and its time over all attempts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from monitoring.host.process import KeptNumber
from monitoring.telemetry.device_pool import POOL, DevicePool, DeviceScalar, Mark, TorchDevice

UNMEASURED: Mapping[str, None] = {"samples_per_sec": None, "sec_per_step": None}

# Nanoseconds that a thread ran, and was ready to while others had its processor, and how often
# (Documentation/scheduler/sched-stats).
SCHEDSTAT = "/proc/thread-self/schedstat"


def cpu_seconds() -> float:
    """CPU time, user and system, of this process with all its threads and of the children it waited for."""
    return sum(os.times()[:4])


class Pace:
    """Counts steps and samples since it was last read; one thread calls it."""

    def restart(self) -> None:
        """Begin to count now: what was done before (an evaluation, a checkpoint) is no training step."""
        self._steps = self._samples = 0

    def step(self, samples: int) -> None:
        """Count one more step, of so many samples."""
        self._steps += 1
        self._samples += samples

    def read(self) -> Mapping[str, float | DeviceScalar | None]:
        """`samples_per_sec` and `sec_per_step` of the steps since the last reading; None without any.

        On a CPU also `cpu_wait_seconds`, the part of `sec_per_step` without a processor.

        A record takes the numbers that a GPU has still to deliver as they are.
        """
        raise NotImplementedError


def open_pace(device: TorchDevice) -> Pace:
    """Return a pace by the CPU's clock; on a GPU by its own, as the host only queues the work."""
    if device.type == "cuda":
        return DevicePace(device)
    return HostPace()


class HostPace(Pace):
    """Pace by the clock of this process."""

    def __init__(self) -> None:
        self._wait = KeptNumber(SCHEDSTAT)
        self.restart()

    def restart(self) -> None:
        self._waited, self._since = self._wait.read(), time.perf_counter()
        super().restart()

    def read(self) -> Mapping[str, float | DeviceScalar | None]:
        since, before, steps, samples = self._since, self._waited, self._steps, self._samples
        self.restart()
        # `restart` has just read both clocks
        seconds, waited = self._since - since, self._waited
        if not steps or not seconds:
            return {**UNMEASURED, "cpu_wait_seconds": None}
        return {
            "samples_per_sec": samples / seconds,
            "sec_per_step": seconds / steps,
            "cpu_wait_seconds": None if waited is None or before is None else (waited - before) / 1e9 / steps,
        }


class DevicePace(Pace):
    """Pace by the GPU's clock, from the end of one reading's last step to that of the next; never waits."""

    def __init__(self, device: Any, pool: DevicePool = POOL) -> None:
        self._device, self._pool = device, pool
        self.restart()

    def restart(self) -> None:
        self._since = self._pool.mark(self._device, timing=True)
        super().restart()

    def read(self) -> Mapping[str, float | DeviceScalar | None]:
        begin, steps, samples = self._since, self._steps, self._samples
        if not steps:
            return UNMEASURED
        self.restart()
        # the end of this reading is the beginning of the next: no time counts twice, none is lost
        span = _Span(begin, self._since)
        return {
            "samples_per_sec": DeviceScalar(span.arrived, lambda: _ratio(samples, span.seconds())),
            "sec_per_step": DeviceScalar(span.arrived, lambda: span.seconds() / steps),
        }


@dataclass(frozen=True)
class _Span:
    """A stretch of a device's work, from one mark to another."""

    begin: Mark
    end: Mark

    def arrived(self) -> bool:
        try:
            return self.end.passed()
        except RuntimeError:  # the device failed; `seconds` says so
            return True

    def seconds(self) -> float:
        """Return its length, waiting for its end."""
        self.end.wait()
        return self.begin.seconds_until(self.end)


def _ratio(samples: int, seconds: float) -> float | None:
    return samples / seconds if seconds else None


class Stopwatch:
    """Seconds of a clock, continuing those of an earlier attempt; it is stopped until `start`."""

    def __init__(self, seconds: float = 0.0, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._before = seconds
        self._clock = clock
        self._since: float | None = None

    def start(self) -> None:
        self._since = self._clock()

    def restart(self) -> None:
        """Begin at zero, now."""
        self._before = 0.0
        self.start()

    @property
    def seconds(self) -> float:
        return self._before + (self._clock() - self._since if self._since is not None else 0.0)
