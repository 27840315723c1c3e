"""Stopping in good order: on a signal after the current step, before a step that would spoil the weights, and
with the cause named where memory or the device fails."""

from __future__ import annotations

import math
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from kharness.runs.exit_codes import DEVICE
from kharness.training.errors import NonFiniteError, OutOfMemoryError, TrainingError
from monitoring.telemetry.device_pool import POOL, DevicePool, DeviceScalar, copy_scalars

# How torch, oneDNN, cuBLAS and cuDNN say that memory is exhausted, besides errors of their own for it.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory", "_ALLOC_FAILED")

# What torch before 2.8, which has no AcceleratorError, says in a RuntimeError.
_DEVICE_ERROR = ("CUDA error:", "HIP error:")

# What torch says of an operation under torch.use_deterministic_algorithms.
_NOT_DETERMINISTIC = " does not have a deterministic implementation"

Scalar = float | DeviceScalar

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StopOnSignal:
    """While entered, a signal only asks to stop; the training looks at `requested` after each step.

    A second Ctrl-C ends the process at once, as if this were not here.
    """

    def __init__(self) -> None:
        self.requested = ""
        """Name of the signal that requested a stop, empty until then."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name
        # os.write and not print: print is not reentrant, and the signal may have come within one.
        with suppress(OSError):  # a terminal that is gone, or a full disk, is no reason not to save
            os.write(2, f"\n{self.requested}: stopping after this step\n".encode())


class FiniteWatch:
    """Raises NonFiniteError when a loss or gradient norm is NaN or infinite.

    On a CPU that is before the optimiser step. On a GPU values are looked at when they have arrived, a few
    steps later, so that training never waits; `wait` before a checkpoint keeps spoiled weights out of it.
    """

    def __init__(self, record: Callable[..., object], *, pool: DevicePool = POOL) -> None:
        """`record(step, train_loss=…, grad_norm=…)` is called with the bad values before the error."""
        self._record = record
        self._pool = pool
        self._in_flight: deque[tuple[int, DeviceScalar, DeviceScalar]] = deque()

    def look(self, step: int, loss: Tensor, grad_norm: Tensor) -> tuple[Scalar, Scalar]:
        """Note the values of a step; raise if these, or earlier ones that have arrived, are not finite.

        Returns the two as numbers where that costs no waiting, else on their way, as a record takes them.
        """
        if not loss.is_cuda:
            values = loss.item(), grad_norm.item()
            self._check(step, *values)
            return values
        train_loss, norm = copy_scalars([loss, grad_norm], self._pool)
        self._in_flight.append((step, train_loss, norm))
        while self._in_flight and all(scalar.arrived() for scalar in self._in_flight[0][1:]):
            self._check_oldest()
        return train_loss, norm

    def wait(self) -> None:
        """Look at everything that was noted, waiting for the device."""
        while self._in_flight:
            self._check_oldest()

    def _check_oldest(self) -> None:
        step, loss, grad_norm = self._in_flight.popleft()
        self._check(step, loss.item(), grad_norm.item())

    def _check(self, step: int, loss: float, grad_norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(grad_norm):
            return
        self._record(step, train_loss=loss, grad_norm=grad_norm)
        raise NonFiniteError(
            f"step {step}: loss {loss}, gradient norm {grad_norm}",
            hint="lower LEARNING_RATE or raise SCHEDULE_WARMUP_FRACTION; earlier checkpoints are intact",
        )


@contextmanager
def named_causes() -> Iterator[None]:
    """Name what memory and devices do to a training: OutOfMemoryError, or `cause` in the error itself.

    Also a decorator. An error of a device keeps its type and its traceback, because it may be a bug.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        said = str(error)
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(w in said for w in _NO_MEMORY):
            first = (said.splitlines() or ["no memory is left"])[0]
            first = first.rpartition("DefaultCPUAllocator: ")[2]  # before it torch names a line of its own
            raise OutOfMemoryError(
                f"out of memory: {first}",
                hint="leave the training more memory and start it again, or lower BATCH_SIZE",
            ) from error
        if _NOT_DETERMINISTIC in said:
            raise TrainingError(
                said.partition(_NOT_DETERMINISTIC)[0] + _NOT_DETERMINISTIC,
                hint="use an operation that has one in the model, or set DETERMINISTIC=n",
            ) from error
        if isinstance(error, getattr(torch, "AcceleratorError", ())) or said.startswith(_DEVICE_ERROR):
            error.cause = DEVICE  # type: ignore[attr-defined]
        raise
