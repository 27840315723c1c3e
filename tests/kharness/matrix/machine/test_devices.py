"""A GPU driver that crashes is reported by the runner; the GPUs are simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kharness.matrix.machine.devices import Gpu, Memory, find_gpus
from kharness.matrix.machine.resources import refuse_too_few_gpus
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch

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


@pytest.mark.parametrize(
    ("asked", "settings", "said", "hint"),
    [
        (
            {"NUM_GPUS": 4},
            None,
            "NUM_GPUS=4: 2 GPUs are visible",
            "train with NUM_GPUS=2, or in 4 processes on the CPU with DEVICE=cpu",
        ),
        (
            {"NUM_GPUS": 2},
            {"MATRIX_GPUS_PER_CELL": 1},
            "NUM_GPUS=2, but a cell gets MATRIX_GPUS_PER_CELL=1",
            "give CONFIG_MATRIX_GPUS_PER_CELL=2, which NUM_GPUS follows",
        ),
    ],
)
def test_more_processes_than_gpus_are_refused_before_anything_is_made(
    driver: SimulatedNvml, asked: dict[str, Any], settings: dict[str, Any] | None, said: str, hint: str
) -> None:
    driver.write("gpus 2", "all memory_total 80000", "all memory_used 1000")

    def refuse(device: str, **others: int) -> None:
        about = {"DEVICE": device, **asked, **others}
        refuse_too_few_gpus([Launch("r", Path("r"), Path(), "lenet5", about)], settings)

    with pytest.raises(MatrixError) as caught:
        refuse("cuda")
    assert (str(caught.value), caught.value.hint) == (said, hint)
    refuse("cpu")
    refuse("cuda", NUM_GPUS=1)
