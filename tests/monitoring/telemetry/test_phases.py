"""Phases of a step: means over the steps of a reading, on a GPU when it has done them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from monitoring import Run, read_records
from monitoring.telemetry import load_balance
from monitoring.telemetry.device_pool import DevicePool
from monitoring.telemetry.phases import MAX_IN_FLIGHT, PHASES, DevicePhases, HostPhases, Phases, open_phases

from ...simulated_cuda import SimulatedCuda

NOTHING = dict.fromkeys(PHASES)


def step(phases: Phases, cuda: SimulatedCuda, *milliseconds: float) -> None:
    phases.begin()
    for phase, length in zip(PHASES, milliseconds, strict=True):
        cuda.queued[0] += length
        phases.end(phase)


def numbers(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of each phase, once the device has done the steps."""
    assert all(number.arrived() for number in reading.values())
    return {phase: number.item() for phase, number in reading.items()}


def seconds(*milliseconds: float) -> Any:
    return pytest.approx({phase: ms / 1000 for phase, ms in zip(PHASES, milliseconds, strict=True)})


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


def test_a_reading_has_the_means_of_its_own_steps_whenever_they_are_done(
    simulated_cuda: SimulatedCuda,
) -> None:
    """Four steps in two records; the GPU does them after both were read."""
    cuda = simulated_cuda
    phases = DevicePhases("cuda:0", DevicePool(cuda))
    step(phases, cuda, 1, 20, 3)
    step(phases, cuda, 3, 40, 5)
    first: Mapping[str, Any] = phases.read()
    step(phases, cuda, 100, 200, 300)
    second: Mapping[str, Any] = phases.read()
    assert phases.read() == NOTHING
    assert not any(number.arrived() for number in [*first.values(), *second.values()])
    cuda.done[0] = 24.0  # the first step
    assert not any(number.arrived() for number in first.values())
    cuda.done[0] = 72.0
    assert numbers(first) == seconds(2, 30, 4)
    assert not any(number.arrived() for number in second.values())
    assert second["data_seconds"].item() == pytest.approx(0.1)  # waits
    assert cuda.done[0] == 672.0
    assert numbers(second) == seconds(100, 200, 300)


def test_records_hold_the_phases_of_their_own_steps(simulated_cuda: SimulatedCuda, tmp_path: Path) -> None:
    """Through Run: what a rank's record says of a step is of that step, so that ranks compare by step."""
    cuda = simulated_cuda
    phases = DevicePhases("cuda:0", DevicePool(cuda))
    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        for number in range(1, 6):
            step(phases, cuda, number, 10 * number, 2)
            run.log_step(number, **phases.read())
            cuda.done[0] = cuda.queued[0] - 12.5 * number  # never the step that was just queued
        run.log_step(6, **phases.read())
    *steps, last, _ = [record for record, _ in read_records(tmp_path / "metrics.jsonl")]
    for number, record in enumerate(steps, start=1):
        assert record["global_step"] == number
        assert {phase: record[phase] for phase in PHASES} == seconds(number, 10 * number, 2)
    assert {phase: last[phase] for phase in PHASES} == NOTHING


def test_a_device_that_fails_loses_the_times_and_nothing_else(
    simulated_cuda: SimulatedCuda, tmp_path: Path
) -> None:
    phases = DevicePhases("cuda:0", DevicePool(simulated_cuda))
    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        step(phases, simulated_cuda, 1, 2, 3)
        run.log_step(1, lr=0.5, **phases.read())
        simulated_cuda.failed = True
    record, end = [record for record, _ in read_records(tmp_path / "metrics.jsonl")]
    assert (record["lr"], record["unserializable"]) == (0.5, list(PHASES))
    assert {phase: record[phase] for phase in PHASES} == NOTHING
    assert end["status"] == "complete"


def test_what_passes_in_a_collective_is_left_out(simulated_cuda: SimulatedCuda) -> None:
    cuda = simulated_cuda
    cuda.done[0] = 1e9
    phases = DevicePhases("cuda:0", DevicePool(cuda))
    for waited in (1000.0, 7.0):
        phases.begin()
        cuda.queued[0] += 1
        phases.end("data_seconds")
        cuda.queued[0] += 20
        phases.end("forward_backward_seconds")
        cuda.queued[0] += waited
        phases.leave_out()
        cuda.queued[0] += 3
        phases.end("optimizer_seconds")
    assert numbers(phases.read()) == {**seconds(1, 20, 3).expected, "collective_seconds": 0.5035}
    assert cuda.events_made == 10
    on_host, began = HostPhases(), time.perf_counter()
    on_host.begin()
    on_host.end("data_seconds")
    on_host.end("forward_backward_seconds")
    time.sleep(0.02)
    on_host.leave_out()
    on_host.end("optimizer_seconds")
    took, found = time.perf_counter() - began, on_host.read()
    assert tuple(found) == (*PHASES, load_balance.COLLECTIVE)
    assert (found[load_balance.COLLECTIVE] or 0.0) >= 0.02
    assert sum(value or 0.0 for value in found.values()) <= took


def test_waiting_within_a_phase_is_left_out(simulated_cuda: SimulatedCuda) -> None:
    """Averaging gradients in backward, in one of two micro-batches, counts as waiting."""
    cuda = simulated_cuda
    cuda.done[0] = 1e9
    phases = DevicePhases("cuda:0", DevicePool(cuda))
    phases.begin()
    for waited in (0.0, 1000.0):
        phases.end("data_seconds")
        cuda.queued[0] += 10
        if waited:
            phases.own_work_done()
            cuda.queued[0] += waited
        phases.end("forward_backward_seconds")
    phases.end("optimizer_seconds")
    assert numbers(phases.read()) == {**seconds(0, 20, 0).expected, "collective_seconds": 1.0}
    on_host, began = HostPhases(), time.perf_counter()
    on_host.begin()
    on_host.end("data_seconds")
    on_host.own_work_done()
    time.sleep(0.02)
    on_host.end("forward_backward_seconds")
    on_host.end("optimizer_seconds")
    took, found = time.perf_counter() - began, on_host.read()
    assert (found["collective_seconds"] or 0.0) >= 0.02
    assert sum(value or 0.0 for value in found.values()) <= took


def test_events_are_used_again(simulated_cuda: SimulatedCuda) -> None:
    cuda = simulated_cuda
    phases = DevicePhases("cuda:0", DevicePool(cuda))
    cuda.done[0] = 1e9
    for _ in range(10 * MAX_IN_FLIGHT):
        step(phases, cuda, 1, 1, 1)
    phases.begin()  # ends nowhere: the loop was left
    step(phases, cuda, 1, 1, 1)
    assert cuda.events_made == 4 * (MAX_IN_FLIGHT + 1)
    assert numbers(phases.read()) == seconds(1, 1, 1)


@pytest.mark.gpu
def test_phases_of_a_gpu_are_its_own_time() -> None:
    """Forward takes ten times as long as what is left out, and that half as long as the update."""
    phases = open_phases(torch.device("cuda"))
    torch.cuda._sleep(1_000)
    torch.cuda.synchronize()
    for _ in range(3):
        phases.begin()
        phases.end("data_seconds")
        torch.cuda._sleep(50_000_000)
        phases.end("forward_backward_seconds")
        torch.cuda._sleep(5_000_000)
        phases.leave_out()
        torch.cuda._sleep(10_000_000)
        phases.end("optimizer_seconds")
    reading: Mapping[str, Any] = phases.read()
    assert not reading["data_seconds"].arrived()
    torch.cuda.synchronize()
    found = numbers(reading)
    assert found["forward_backward_seconds"] / found["optimizer_seconds"] == pytest.approx(5, rel=0.1)
    assert found["data_seconds"] < 0.01 * found["forward_backward_seconds"]


def test_forward_and_backward_are_recorded_apart_and_together(simulated_cuda: SimulatedCuda) -> None:
    cuda = simulated_cuda
    cuda.done[0] = 1e9
    on_device, on_host = DevicePhases("cuda:0", DevicePool(cuda)), HostPhases()
    for phases in (on_device, on_host):
        phases.begin()
        for name in ("data_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds"):
            cuda.queued[0] += 10
            phases.end(name)
    found: Mapping[str, Any] = on_device.read()
    assert numbers(found) == pytest.approx(
        {
            "data_seconds": 0.01,
            "forward_backward_seconds": 0.02,
            "optimizer_seconds": 0.01,
            "forward_seconds": 0.01,
            "backward_seconds": 0.01,
        }
    )
    host: Mapping[str, Any] = on_host.read()
    assert list(host) == list(found)
    assert host["forward_backward_seconds"] == host["forward_seconds"] + host["backward_seconds"]


def test_work_before_and_after_waiting_is_that_of_its_phase(simulated_cuda: SimulatedCuda) -> None:
    """Buffers are sent before a forward pass; an evaluation between steps counts nowhere."""
    cuda = simulated_cuda
    cuda.done[0] = 1e9
    phases = DevicePhases("cuda:0", DevicePool(cuda))
    for _ in range(2):
        phases.own_work_done()
        cuda.queued[0] += 5000
        phases.leave_out()
        phases.begin()
        phases.end("data_seconds")
        cuda.queued[0] += 60
        phases.own_work_done()
        cuda.queued[0] += 1000
        phases.leave_out()
        cuda.queued[0] += 10
        phases.end("forward_seconds")
        phases.end("backward_seconds")
        cuda.queued[0] += 3
        phases.own_work_done()
        cuda.queued[0] += 500
        phases.leave_out()
        cuda.queued[0] += 2
        phases.end("optimizer_seconds")
    found: Mapping[str, Any] = phases.read()
    assert numbers(found) == pytest.approx(
        {
            "data_seconds": 0.0,
            "forward_backward_seconds": 0.07,
            "optimizer_seconds": 0.005,
            "forward_seconds": 0.07,
            "backward_seconds": 0.0,
            "collective_seconds": 1.5,
        }
    )


def test_without_proof_that_waiting_was_left_out_there_are_no_collectives(
    simulated_cuda: SimulatedCuda,
) -> None:
    """A sharded model gathers weights within the phases."""
    simulated_cuda.done[0] = 1e9
    for phases in (HostPhases(), DevicePhases("cuda:0", DevicePool(simulated_cuda))):
        phases.waiting_stays()
        phases.begin()
        phases.leave_out()
        for phase in PHASES:
            phases.end(phase)
        assert tuple(phases.read()) == PHASES
