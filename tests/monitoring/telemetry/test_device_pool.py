"""Marks in a device's work, and copies of its numbers: of the device that is meant, and used again."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from monitoring.telemetry.device_pool import Cuda, DevicePool, copy_scalars

from ...simulated_cuda import SimulatedCuda


class OnDevice(torch.Tensor):
    """A tensor that says it lies on a CUDA device."""

    is_cuda = property(lambda self: True)
    device = property(lambda self: self.place)


def on_device(value: float, index: int) -> Any:
    tensor: Any = torch.tensor(value).as_subclass(OnDevice)
    tensor.place = torch.device("cuda", index)
    tensor.detach = lambda: torch.tensor(value)
    return tensor


@pytest.mark.parametrize("method", ["record", "query", "synchronize", "elapsed_time"])
def test_simulated_events_take_what_torchs_take(simulated_cuda: SimulatedCuda, method: str) -> None:
    of_torch = inspect.signature(getattr(torch.cuda.Event, method))
    simulated = inspect.signature(getattr(type(simulated_cuda.event(timing=True)), method))
    assert list(simulated.parameters) == list(of_torch.parameters)


def test_what_is_taken_from_torch_is_there() -> None:
    """`Cuda` itself runs only where there is a GPU: its calls bind to torch's signatures."""
    event = inspect.signature(torch.cuda.Event).bind(enable_timing=True)
    stream = inspect.signature(torch.cuda.current_stream).bind(torch.device("cuda", 1))
    assert event.arguments == {"enable_timing": True}
    assert stream.arguments == {"device": torch.device("cuda", 1)}


def test_mark_is_of_the_device_that_is_named_and_not_of_the_current_one(
    simulated_cuda: SimulatedCuda,
) -> None:
    pool = DevicePool(simulated_cuda)
    simulated_cuda.queued.update({0: 5.0, 1: 7.0})
    marks = [pool.mark(torch.device("cuda", index)) for index in (0, 1)]
    simulated_cuda.done[0] = 5.0
    assert [mark.passed() for mark in marks] == [True, False]
    simulated_cuda.done[1] = 7.0
    assert [mark.passed() for mark in marks] == [True, True]


def test_events_of_a_device_without_an_index_follow_the_current_one(simulated_cuda: SimulatedCuda) -> None:
    """An event is bound to a device: one of cuda:0 cannot be recorded on cuda:1."""
    pool, device = DevicePool(simulated_cuda), torch.device("cuda")
    for current in (0, 1, 0, 1):
        simulated_cuda.current = current
        assert pool.mark(device).passed()
    assert simulated_cuda.events_made == 2


def test_event_is_used_again_when_nobody_holds_its_mark(simulated_cuda: SimulatedCuda) -> None:
    pool = DevicePool(simulated_cuda)
    kept = pool.mark("cuda:0", timing=True)
    for _ in range(5):
        pool.mark("cuda:0", timing=True)
        simulated_cuda.queued[0] += 2.0
    last = pool.mark("cuda:0", timing=True)
    last.wait()
    assert kept.seconds_until(last) == pytest.approx(0.010)
    assert simulated_cuda.events_made == 2


def test_copies_of_two_devices_arrive_each_by_its_own_event(simulated_cuda: SimulatedCuda) -> None:
    """While cuda:0, the current device, has done everything, cuda:1 has not begun its copy."""
    simulated_cuda.queued.update({0: 1.0, 1: 50.0})
    simulated_cuda.done[0] = 1.0
    pool = DevicePool(simulated_cuda)
    first, second, third = copy_scalars([on_device(1.5, 0), on_device(2.5, 1), on_device(3.5, 1)], pool)
    assert (first.arrived(), second.arrived(), third.arrived()) == (True, False, False)
    assert (first.item(), second.item(), third.item()) == (1.5, 2.5, 3.5)
    assert simulated_cuda.done[1] == 50.0
    assert (simulated_cuda.events_made, simulated_cuda.pinned_made) == (2, 3)


def test_copy_of_a_device_that_failed_raises_when_it_is_read(simulated_cuda: SimulatedCuda) -> None:
    simulated_cuda.queued[0] = 1.0
    (copy,) = copy_scalars([on_device(1.5, 0)], DevicePool(simulated_cuda))
    simulated_cuda.failed = True
    assert copy.arrived()
    with pytest.raises(RuntimeError, match="device-side assert"):
        copy.item()


def test_events_and_pinned_memory_have_one_pool(root: Path) -> None:
    words = ("cuda.Event(", "pin_memory=", "pin_memory(")
    found = {
        path.name
        for path in [*root.glob("lib/**/*.py"), *root.glob("lenet5/*.py")]
        if any(word in path.read_text() for word in words)
    }
    assert found == {"device_pool.py"}


@pytest.mark.gpu
def test_marks_time_what_a_gpu_does_between_them() -> None:
    pool = DevicePool(Cuda())
    device = torch.device("cuda")
    torch.cuda._sleep(1_000)
    torch.cuda.synchronize()
    begin = pool.mark(device, timing=True)
    torch.cuda._sleep(200_000_000)  # cycles: a tenth of a second at 2 GHz
    end = pool.mark(device, timing=True)
    assert not end.passed()
    end.wait()
    assert begin.passed()
    assert 0.03 < begin.seconds_until(end) < 1.0
