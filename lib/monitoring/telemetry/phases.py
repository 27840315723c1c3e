"""How long the steps of a training wait for data, go forward and backward, and update the weights.

A rank that waits for others is as busy as they are; its own work, without collectives, tells who is slow
(monitoring.telemetry.load_balance). So a loop marks the end of each phase, and leaves out what passes in
collectives.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from monitoring.telemetry.device_pool import POOL, DevicePool, Event

if TYPE_CHECKING:
    import torch

# In the order of a step; the names are those of step records, in seconds a step.
PHASES = ("data_seconds", "forward_backward_seconds", "optimizer_seconds")

# Steps whose events may wait for the next reading.
MAX_IN_FLIGHT = 64


class Phases(Protocol):
    """A step calls `begin`, then `end` with each of PHASES in their order, and `leave_out` where it waits."""

    def begin(self) -> None: ...

    def end(self, phase: str) -> None: ...

    def leave_out(self) -> None:
        """What has passed since the last call counts in no phase, such as a collective."""

    def read(self) -> Mapping[str, float | None]:
        """Seconds a step of each phase, over the steps since the last reading; None where none marked it."""


def open_phases(device: torch.device) -> Phases:
    """Of the CPU's clock; on a GPU of the GPU's own, without waiting for it."""
    if device.type == "cuda":
        return DevicePhases(device)
    return HostPhases()


class HostPhases:
    """By the clock of this process."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._steps = 0
        self._mark = 0.0

    def begin(self) -> None:
        self._mark = time.perf_counter()

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._mark
        self._mark = now
        if phase == PHASES[-1]:
            self._steps += 1

    def leave_out(self) -> None:
        self._mark = time.perf_counter()

    def read(self) -> Mapping[str, float | None]:
        found = _means(self._seconds, self._steps)
        self._seconds, self._steps = {}, 0
        return found


class DevicePhases:
    """By events in the GPU's stream, used again when they have passed.

    A reading never waits: steps that the GPU has not done yet count in a later one.
    """

    def __init__(self, device: Any, pool: DevicePool = POOL) -> None:
        self._device, self._pool = device, pool
        self._step: list[tuple[str, Event]] = []  # each with the phase that it ends, "" for none
        self._in_flight: deque[list[tuple[str, Event]]] = deque()
        self._seconds: dict[str, float] = {}
        self._steps = 0

    def begin(self) -> None:
        self._give_back(self._step)  # of a step that did not come to its end
        self._step = [("", self._recorded())]

    def end(self, phase: str) -> None:
        self._step.append((phase, self._recorded()))
        if phase == PHASES[-1]:
            self._in_flight.append(self._step)
            self._step = []
            if len(self._in_flight) > MAX_IN_FLIGHT:
                self._take_passed()

    def leave_out(self) -> None:
        self._step.append(("", self._recorded()))

    def read(self) -> Mapping[str, float | None]:
        self._take_passed()
        found = _means(self._seconds, self._steps)
        self._seconds, self._steps = {}, 0
        return found

    def _recorded(self) -> Event:
        return self._pool.recorded(self._device, timing=True)

    def _give_back(self, marks: Iterable[tuple[str, Event]]) -> None:
        for _, event in marks:
            self._pool.give_back(event, self._device, timing=True)

    def _take_passed(self) -> None:
        while self._in_flight and self._in_flight[0][-1][1].query():
            marks = self._in_flight.popleft()
            for (_, begin), (phase, end) in pairwise(marks):
                if phase:
                    seconds = begin.elapsed_time(end) / 1000
                    self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
            self._give_back(marks)
            self._steps += 1


def _means(seconds: Mapping[str, float], steps: int) -> Mapping[str, float | None]:
    return {phase: seconds[phase] / steps if steps and phase in seconds else None for phase in PHASES}
