"""Phases of a step: means over steps, and on a GPU only of steps that it has done."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from monitoring.telemetry import load_balance
from monitoring.telemetry.device_pool import Cuda, DevicePool
from monitoring.telemetry.phases import MAX_IN_FLIGHT, PHASES, DevicePhases, HostPhases, open_phases

NOTHING = dict.fromkeys(PHASES)


class Gpu(Cuda):
    """A stream of events; one that is recorded passes when its moment, in ms, has come."""

    def __init__(self) -> None:
        self.queued = 0.0
        self.done = 0.0
        self.made = 0

    def event(self, *, timing: bool) -> GpuEvent:
        self.made += 1
        return GpuEvent(self)

    def stream(self, device: Any) -> None:
        return None


class GpuEvent:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.at = 0.0

    def record(self, stream: Any, /) -> None:
        self.at = self.gpu.queued

    def query(self) -> bool:
        return self.at <= self.gpu.done

    def synchronize(self) -> None:
        self.gpu.done = max(self.gpu.done, self.at)

    def elapsed_time(self, end_event: GpuEvent, /) -> float:
        return end_event.at - self.at


def step(phases: DevicePhases, gpu: Gpu, *milliseconds: float) -> None:
    phases.begin()
    for phase, length in zip(PHASES, milliseconds, strict=True):
        gpu.queued += length
        phases.end(phase)


def test_the_names_are_those_that_the_balance_looks_for() -> None:
    assert tuple(load_balance.PHASES) == PHASES


def test_a_cpu_has_the_clock_of_its_process() -> None:
    phases = open_phases(torch.device("cpu"))
    assert isinstance(phases, HostPhases)
    assert phases.read() == NOTHING
    began = time.perf_counter()
    for _ in range(3):
        phases.begin()
        for phase in PHASES:
            phases.end(phase)
    took = time.perf_counter() - began
    found = phases.read()
    assert all(value is not None and value >= 0 for value in found.values())
    assert 3 * sum(value or 0.0 for value in found.values()) <= took
    assert phases.read() == NOTHING


def test_a_gpu_is_read_without_waiting() -> None:
    gpu = Gpu()
    phases = DevicePhases("cuda:0", DevicePool(gpu))
    step(phases, gpu, 1, 20, 3)
    step(phases, gpu, 3, 40, 5)
    assert phases.read() == NOTHING
    gpu.done = 24.0  # the first step
    assert phases.read() == pytest.approx(dict(zip(PHASES, (0.001, 0.02, 0.003), strict=True)))
    gpu.done = 1000.0
    step(phases, gpu, 1, 20, 3)
    assert phases.read() == pytest.approx(dict(zip(PHASES, (0.002, 0.03, 0.004), strict=True)))


def test_what_passes_in_a_collective_is_left_out() -> None:
    gpu = Gpu()
    gpu.done = 1e9
    phases = DevicePhases("cuda:0", DevicePool(gpu))
    for waited in (1000.0, 7.0):
        phases.begin()
        gpu.queued += 1
        phases.end("data_seconds")
        gpu.queued += 20
        phases.end("forward_backward_seconds")
        gpu.queued += waited
        phases.leave_out()
        gpu.queued += 3
        phases.end("optimizer_seconds")
    assert phases.read() == pytest.approx(dict(zip(PHASES, (0.001, 0.02, 0.003), strict=True)))
    assert gpu.made == 10
    on_host = HostPhases()
    on_host.begin()
    on_host.end("data_seconds")
    on_host.end("forward_backward_seconds")
    time.sleep(0.02)
    on_host.leave_out()
    on_host.end("optimizer_seconds")
    assert sum(value or 0.0 for value in on_host.read().values()) < 0.02


def test_events_are_used_again() -> None:
    gpu = Gpu()
    phases = DevicePhases("cuda:0", DevicePool(gpu))
    gpu.done = 1e9
    for _ in range(10 * MAX_IN_FLIGHT):
        step(phases, gpu, 1, 1, 1)
    phases.begin()  # ends nowhere: the loop was left
    step(phases, gpu, 1, 1, 1)
    assert gpu.made == 4 * (MAX_IN_FLIGHT + 1)
    assert phases.read() == pytest.approx(dict.fromkeys(PHASES, 0.001))
