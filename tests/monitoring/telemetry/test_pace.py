"""Pace: steps and samples between one reading and the next, on a GPU by its own clock."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from monitoring import Run, read_records
from monitoring.telemetry.device_pool import DevicePool
from monitoring.telemetry.pace import SCHEDSTAT, DevicePace, HostPace, open_pace

from ...simulated_cuda import SimulatedCuda
from ...waiting import wait_until

NOT_MEASURED = {"samples_per_sec": None, "sec_per_step": None, "cpu_wait_seconds": None}


def test_without_steps_nothing_is_measured() -> None:
    assert HostPace().read() == NOT_MEASURED


def test_reading_starts_again() -> None:
    pace = HostPace()
    pace.step(64)
    pace.step(32)
    first: Mapping[str, Any] = pace.read()
    assert first["samples_per_sec"] is not None
    assert first["sec_per_step"] is not None
    # 96 samples in 2 steps, whatever the time was
    assert first["samples_per_sec"] * first["sec_per_step"] == pytest.approx(48)
    assert pace.read() == NOT_MEASURED


def test_restart_forgets_what_was_no_training() -> None:
    pace = HostPace()
    pace.step(64)
    pace.restart()
    assert pace.read() == NOT_MEASURED


@pytest.mark.skipif(not Path(SCHEDSTAT).exists(), reason="the kernel does not say how long a thread waits")
def test_time_without_a_processor_is_told() -> None:
    """This thread and a busy process share one processor."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    pace = HostPace()

    def crowded() -> Mapping[str, Any] | None:
        pace.step(1)
        sum(range(10**6))
        found: Mapping[str, Any] = pace.read()
        return found if found["cpu_wait_seconds"] > 0.001 else None

    try:
        assert wait_until(crowded)
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, allowed)


def test_pace_of_a_gpu_is_that_of_its_work_and_not_of_queueing(
    simulated_cuda: SimulatedCuda, tmp_path: Path
) -> None:
    """Steps of 40 ms are queued in no time, and done while the next record is queued or in the end."""
    cuda = simulated_cuda
    pace = DevicePace("cuda:0", DevicePool(cuda))
    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        for step in range(1, 7):
            cuda.queued[0] += 40.0
            pace.step(64)
            if step % 2 == 0:
                run.log_step(step, **pace.read())
                cuda.done[0] = cuda.queued[0] - 60.0
    steps = [record for record, _ in read_records(tmp_path / "metrics.jsonl")][:-1]
    assert [record["sec_per_step"] for record in steps] == pytest.approx([0.040] * 3)
    assert [record["samples_per_sec"] for record in steps] == pytest.approx([64 / 0.040] * 3)
    assert cuda.events_made <= 4  # of the records alone, whatever the number of steps


def test_evaluation_on_a_gpu_is_no_training_step(simulated_cuda: SimulatedCuda) -> None:
    cuda = simulated_cuda
    pace = DevicePace("cuda:0", DevicePool(cuda))
    assert pace.read() == {"samples_per_sec": None, "sec_per_step": None}
    cuda.queued[0] += 10.0
    pace.step(64)
    cuda.queued[0] += 500.0  # an evaluation
    pace.restart()
    cuda.queued[0] += 20.0
    pace.step(32)
    reading: Mapping[str, Any] = pace.read()
    assert not reading["sec_per_step"].arrived()
    assert reading["sec_per_step"].item() == pytest.approx(0.020)
    assert reading["samples_per_sec"].item() == pytest.approx(1600)


def test_work_without_a_length_has_no_rate(simulated_cuda: SimulatedCuda) -> None:
    pace = DevicePace("cuda:0", DevicePool(simulated_cuda))
    pace.step(64)
    reading: Mapping[str, Any] = pace.read()
    assert {name: number.item() for name, number in reading.items()} == {
        "samples_per_sec": None,
        "sec_per_step": 0.0,
    }


@pytest.mark.gpu
def test_pace_of_a_real_gpu_is_slower_than_queueing() -> None:
    pace = open_pace(torch.device("cuda"))
    torch.cuda._sleep(1_000)
    torch.cuda.synchronize()
    pace.restart()
    began = time.perf_counter()
    for _ in range(10):
        torch.cuda._sleep(20_000_000)
        pace.step(64)
    reading: Mapping[str, Any] = pace.read()
    queued = time.perf_counter() - began
    took = reading["sec_per_step"].item() * 10
    assert queued < 0.5 * took
    assert time.perf_counter() - began >= took
    assert reading["samples_per_sec"].item() == pytest.approx(640 / took)
