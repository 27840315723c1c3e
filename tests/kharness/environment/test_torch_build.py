"""Where a GPU's driver is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kharness.environment.torch_build import gpu_driver


@pytest.mark.parametrize(
    ("file", "driver"),
    [
        ("proc/driver/nvidia/version", "NVIDIA"),
        ("dev/nvidiactl", "NVIDIA"),
        ("usr/lib/wsl/lib/libcuda.so.1", "NVIDIA"),
        ("dev/kfd", "AMD"),
        ("dev/dri/card0", None),
    ],
)
def test_a_driver_is_known_by_its_files(tmp_path: Path, file: str, driver: str | None) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    assert gpu_driver(tmp_path) == driver
