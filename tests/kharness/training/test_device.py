"""The device that was asked for, or an error: nothing falls back."""

from __future__ import annotations

import pytest
import torch

from kharness.training.device import choose_device, set_threads
from kharness.training.errors import DeviceError


def test_cpu_has_no_gpu_memory() -> None:
    device = choose_device("cpu")
    assert str(device) == "cpu (requested)"
    assert device.memory() == {"gpu_mem_allocated": None, "gpu_mem_reserved": None}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is visible")
def test_auto_without_a_gpu_says_why_it_is_the_cpu() -> None:
    assert str(choose_device("auto")) == "cpu (no GPU is visible)"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is visible")
def test_cuda_without_a_gpu_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"^DEVICE=cuda: ") as caught:
        choose_device("cuda")
    assert "DEVICE=auto" in caught.value.hint


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is visible")
def test_gpu_reports_its_memory_in_gb() -> None:
    device = choose_device("cuda")
    block = torch.empty(250_000_000, dtype=torch.float32, device=device.torch)
    allocated = device.memory()["gpu_mem_allocated"]
    assert allocated is not None
    assert allocated == pytest.approx(block.numel() * 4 / 1e9, rel=0.01)


def test_threads_are_set_or_left_alone() -> None:
    before = torch.get_num_threads()
    try:
        assert set_threads(1) == 1
        assert set_threads(0) == 1
    finally:
        torch.set_num_threads(before)
