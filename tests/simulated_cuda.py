"""Devices without a GPU: work that a test queues, and events that pass when the test says how far it is done.

It stands in for what `monitoring.telemetry.device_pool.Cuda` takes from torch; tests/monitoring/telemetry/
test_device_pool.py holds it to torch's own signatures.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from monitoring.telemetry.device_pool import Cuda


class SimulatedCuda(Cuda):
    """Clocks in milliseconds, one a device."""

    def __init__(self) -> None:
        self.current = 0
        """Which device is meant by `cuda` without an index."""
        self.queued: defaultdict[int, float] = defaultdict(float)
        """Time at which the queued work will be done, by device."""
        self.done: defaultdict[int, float] = defaultdict(float)
        self.failed = False
        self.events_made = self.pinned_made = 0

    def event(self, *, timing: bool) -> SimulatedEvent:
        self.events_made += 1
        return SimulatedEvent(self, timing)

    def stream(self, device: Any) -> SimulatedStream:
        index = torch.device(device).index
        return SimulatedStream(torch.device("cuda", self.current if index is None else index))

    def pinned(self, dtype: Any) -> torch.Tensor:
        self.pinned_made += 1
        return torch.empty((), dtype=dtype)


class SimulatedStream:
    def __init__(self, device: torch.device) -> None:
        self.device = device


class SimulatedEvent:
    """Stand-in for torch.cuda.Event: bound to the device that it is first recorded on."""

    def __init__(self, cuda: SimulatedCuda, timing: bool) -> None:
        self.cuda, self.timing = cuda, timing
        self.device: torch.device | None = None
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        if self.device not in (None, stream.device):
            raise RuntimeError(
                f"Event device {self.device} does not match recording stream's {stream.device}"
            )
        self.device = stream.device
        self.at = self.cuda.queued[stream.device.index]

    def query(self) -> bool:
        if self.cuda.failed:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")
        assert self.device is not None
        return self.at <= self.cuda.done[self.device.index]

    def synchronize(self) -> None:
        if not self.query():
            assert self.device is not None
            self.cuda.done[self.device.index] = self.at

    def elapsed_time(self, end_event: SimulatedEvent) -> float:
        if not (self.timing and end_event.timing and self.query() and end_event.query()):
            raise ValueError("both events must have passed, and be made with enable_timing=True")
        return end_event.at - self.at
