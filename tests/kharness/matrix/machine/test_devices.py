"""What the runner knows of GPUs whose driver crashes; the GPUs are simulated."""

from __future__ import annotations

import pytest

from kharness.matrix.machine.devices import Gpu, Memory, find_gpus

from ....simulated_nvml.simulated_nvml import SimulatedNvml

UUID = "GPU-51a10000-0000-4000-8000-000000000000"


@pytest.fixture
def driver(visible_nvml: SimulatedNvml) -> SimulatedNvml:
    """One simulated GPU."""
    visible_nvml.write("gpus 1", "gpu 0 memory_total 80000", "gpu 0 memory_used 1000")
    return visible_nvml


def test_driver_that_crashes_later_leaves_the_memory_unknown(driver: SimulatedNvml) -> None:
    gpus = find_gpus()
    assert gpus.gpus == [Gpu(UUID, "GPU 0 (Simulated H100 80GB)", "nvidia")]
    assert gpus.look() == {UUID: Memory(1000, 80000, {})}
    driver.add("gpu 0 utilization crash")
    while gpus.look() != {UUID: None}:  # the simulation looks at its file every 5 ms
        pass
    assert gpus.look() == {UUID: None}
    died = "GPU sampling was killed by SIGSEGV in nvmlDeviceGetUtilizationRates"
    assert gpus.problems == [died]
    gpus.close()


def test_driver_that_crashes_at_once_is_why_there_are_no_gpus(driver: SimulatedNvml) -> None:
    driver.add("gpu 0 state crash")
    gpus = find_gpus()
    died = "GPU sampling was killed by SIGSEGV in nvmlDeviceGetHandleByIndex"
    assert (gpus.gpus, gpus.problems) == ([], [died])
