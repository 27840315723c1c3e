"""NVIDIA's driver that is not there, does not begin or has no GPU, and what it is reported as."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Sampling


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("driver_not_loaded", "driver not loaded (modprobe nvidia; dmesg says why the driver did not load)"),
        (
            "mismatch",
            "rm has detected an nvml/rm version mismatch. "
            "(the driver was updated while it was in use: reboot)",
        ),
        (
            "denied",
            "insufficient permissions (give this user or container (--gpus all) the devices /dev/nvidia*)",
        ),
        ("unknown", "unknown error"),
    ],
)
def test_driver_that_does_not_begin_is_a_reason(
    sampling: Callable[..., Sampling], word: str, problem: str
) -> None:
    process = sampling(f"init {word}")
    assert (process.devices, process.problems) == (None, [f"NVML: {problem}"])


def test_driver_without_a_gpu_is_a_reason(sampling: Callable[..., Sampling]) -> None:
    process = sampling("gpus 0")
    assert process.problems == ["the nvidia driver is loaded, and has no GPU"]


def test_driver_without_its_library_is_a_reason(sampling: Callable[..., Sampling], tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    process = sampling(root=tmp_path)
    assert process.problems == [
        "NVML: nvml shared library not found "
        "(install the driver's libnvidia-ml.so.1 (Debian: libnvidia-ml1), "
        "or add its folder to LD_LIBRARY_PATH)"
    ]


def test_library_that_cannot_be_loaded_is_a_reason(sampling: Callable[..., Sampling], tmp_path: Path) -> None:
    """Though the kernel says nothing of a driver, as in WSL and some containers."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not one")
    process = sampling(LD_LIBRARY_PATH=str(tmp_path))
    assert (process.devices, process.problems) == (
        None,
        [
            f"NVML: {tmp_path}/libnvidia-ml.so.1: file too short "
            "(reinstall it with the driver (Debian: libnvidia-ml1), or correct LD_LIBRARY_PATH)"
        ],
    )


def test_machine_without_a_driver_has_no_gpu_and_no_problem(
    sampling: Callable[..., Sampling], tmp_path: Path
) -> None:
    process = sampling(root=tmp_path)
    assert (process.devices, process.problems) == (None, [])


def test_missing_nvidia_ml_py_is_told_where_there_is_a_driver(
    bare_python: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "machine/proc/driver/nvidia").mkdir(parents=True)
    code = "from monitoring.samplers import *; from pathlib import Path; print(probe_all(Path('machine')))"
    assert bare_python(code) == "(None, ['nvidia-ml-py is not installed (pip install nvidia-ml-py)'])\n"
