"""Signals only ask to stop, and a number that is none stops the training before the optimizer step."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from kharness.training.errors import NonFiniteError, OutOfMemoryError
from kharness.training.guard import FiniteWatch, StopOnSignal, named_causes
from monitoring import Run, read_records
from monitoring.telemetry.device_pool import DevicePool, DeviceScalar

from ...simulated_cuda import SimulatedCuda
from ...warm_python import WarmPython


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signal_asks_to_stop_and_handlers_come_back(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with StopOnSignal() as stop:
        assert stop.requested == ""
        os.kill(os.getpid(), number)
        assert stop.requested == number.name
    assert signal.getsignal(number) is before
    assert capfd.readouterr().err == f"\n{number.name}: stopping after this step\n"


def test_signal_asks_to_stop_where_nobody_can_be_told() -> None:
    """The handler runs wherever the training is just then: an error in it would end that."""
    kept = os.dup(2)
    try:
        with open("/dev/full", "w") as full, StopOnSignal() as stop:
            os.dup2(full.fileno(), 2)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.requested == "SIGTERM"
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_second_ctrl_c_ends_at_once() -> None:
    with StopOnSignal():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGUSR1])
def test_ctrl_c_just_after_another_signal_is_the_same_request(first: signal.Signals) -> None:
    with StopOnSignal() as stop:
        os.kill(os.getpid(), first)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == first.name
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_second_sigterm_still_only_asks() -> None:
    with StopOnSignal() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested == "SIGTERM"


EXITS = """
import atexit, sys, time
from kharness.training.guard import StopOnSignal

def end():
    print("saved", flush=True)
    sys.stdin.read()

atexit.register(end)
with StopOnSignal() as stop:
    print("trains", flush=True)
    while not stop.requested:
        time.sleep(0.001)
    sys.exit(75)
"""


def test_a_request_that_comes_twice_leaves_the_exit_code_of_the_first(warm_torch: WarmPython) -> None:
    """`scancel` signals all processes of a job, of which one passes it on."""
    pipe = subprocess.PIPE
    training = warm_torch.start(["-c", EXITS], stdin=pipe, stdout=pipe, stderr=pipe)
    assert training.stdout is not None
    assert training.stdout.readline() == "trains\n"
    training.terminate()
    assert training.stdout.readline() == "saved\n"
    training.terminate()
    training.send_signal(signal.SIGUSR1)
    assert training.communicate(timeout=600) == ("", "\nSIGTERM: stopping after this step\n")
    assert training.returncode == 75


def test_finite_values_come_back_as_numbers() -> None:
    watch = FiniteWatch(record=pytest.fail)
    assert watch.look(1, torch.tensor(0.5), torch.tensor(2.0)) == (0.5, 2.0)
    watch.wait()


@pytest.mark.parametrize(
    ("loss", "norm", "message"),
    [
        (math.nan, 1.0, "step 7: loss nan, gradient norm 1.0"),
        (math.inf, 1.0, "step 7: loss inf, gradient norm 1.0"),
        (0.5, math.inf, "step 7: loss 0.5, gradient norm inf"),
    ],
)
def test_non_finite_value_is_recorded_and_raises(loss: float, norm: float, message: str) -> None:
    recorded: list[tuple[int, float, float]] = []
    watch = FiniteWatch(
        record=lambda step, train_loss, grad_norm: recorded.append((step, train_loss, grad_norm))
    )
    with pytest.raises(NonFiniteError) as caught:
        watch.look(7, torch.tensor(loss), torch.tensor(norm))
    assert str(caught.value) == message
    assert caught.value.exit_code == 65
    assert repr(recorded) == repr([(7, loss, norm)])


class OnDevice(torch.Tensor):
    """A tensor that says it lies on a CUDA device."""

    is_cuda = property(lambda self: True)
    device = property(lambda self: torch.device("cuda", 0))

    def detach(self) -> torch.Tensor:
        return torch.tensor(self.item())


def on_device(value: float) -> torch.Tensor:
    return torch.tensor(value).as_subclass(OnDevice)


def test_logged_values_are_copied_once_and_their_memory_is_used_again(
    simulated_cuda: SimulatedCuda, tmp_path: Path
) -> None:
    """Fifty steps whose values arrive late: the watch and the record read the same two copies."""
    cuda = simulated_cuda
    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        watch = FiniteWatch(record=run.log_step, pool=DevicePool(cuda))
        for step in range(1, 51):
            cuda.queued[0] += 1.0
            loss, norm = watch.look(step, on_device(step / 2), on_device(2.0))
            run.log_step(step, train_loss=loss, grad_norm=norm)
            assert len(run._in_flight) == 1
            cuda.done[0] = cuda.queued[0]
            watch.wait()
            run.last_seq()
    steps = [record for record, _ in read_records(tmp_path / "metrics.jsonl") if record["event"] == "step"]
    assert [(r["train_loss"], r["grad_norm"]) for r in steps] == [(step / 2, 2.0) for step in range(1, 51)]
    assert (cuda.pinned_made, cuda.events_made) == (4, 2)  # the names above hold the step before


def test_value_still_on_its_way_is_checked_before_a_checkpoint(simulated_cuda: SimulatedCuda) -> None:
    cuda, recorded = simulated_cuda, list[int]()
    cuda.queued[0] = 1.0
    watch = FiniteWatch(record=lambda step, **values: recorded.append(step), pool=DevicePool(cuda))
    watch.look(1, on_device(math.nan), on_device(1.0))
    assert recorded == []
    with pytest.raises(NonFiniteError, match="step 1: loss nan"):
        watch.wait()
    assert recorded == [1]


@pytest.mark.gpu
def test_gpu_values_are_looked_at_without_waiting() -> None:
    recorded: list[int] = []
    watch = FiniteWatch(record=lambda step, **values: recorded.append(step))
    bad, good = torch.tensor(math.nan, device="cuda"), torch.tensor(1.0, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss, norm = watch.look(1, good, good)
        assert isinstance(loss, DeviceScalar)
        assert isinstance(norm, DeviceScalar)
    finally:
        torch.cuda.set_sync_debug_mode("default")

    def look_and_wait() -> None:
        watch.look(2, bad, good)
        watch.wait()

    with pytest.raises(NonFiniteError, match="step 2: loss nan"):
        look_and_wait()
    assert recorded == [2]


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (MemoryError(), "out of memory: no memory is left"),
        (RuntimeError("std::bad_alloc"), "out of memory: std::bad_alloc"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore"),
            "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB.",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
            "out of memory: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)",
        ),
    ],
)
def test_want_of_memory_is_one_error(raised: Exception, message: str) -> None:
    with pytest.raises(OutOfMemoryError) as caught, named_causes():
        raise raised
    assert (str(caught.value), caught.value.exit_code) == (message, 71)
    assert caught.value.__cause__ is raised


def test_error_of_the_device_keeps_its_type_and_tells_its_cause() -> None:
    with pytest.raises(torch.AcceleratorError) as caught, named_causes():
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    assert caught.value.cause == "device"  # type: ignore[attr-defined]


def test_torch_without_accelerator_error_does_not_hide_a_failing_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch 2.7 has no AcceleratorError."""
    monkeypatch.delattr(torch, "AcceleratorError")
    error = RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronous")
    with pytest.raises(RuntimeError) as caught, named_causes():
        raise error
    assert (caught.value, caught.value.cause) == (error, "device")  # type: ignore[attr-defined]
    other = RuntimeError("shape mismatch")
    with pytest.raises(RuntimeError) as caught, named_causes():
        raise other
    assert (caught.value, hasattr(other, "cause")) == (other, False)


def test_any_other_error_passes() -> None:
    error = RuntimeError("shape mismatch")
    with pytest.raises(RuntimeError) as caught, named_causes():
        raise error
    assert caught.value is error
