"""Guards of a training: an orderly stop on a signal, no update from values that are not finite, and named
causes of memory and device errors.
"""

from __future__ import annotations

import math
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from kharness.runs.exit_codes import DEVICE, SAYS_STOPPING
from kharness.training.errors import NonFiniteError, OutOfMemoryError, TrainingError
from monitoring.host.stop_signals import StopRequests
from monitoring.telemetry.device_pool import POOL, DevicePool, DeviceScalar, copy_scalars

# How torch, oneDNN, cuBLAS and cuDNN say that memory is exhausted, besides errors of their own for it.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory", "_ALLOC_FAILED")

# What torch before 2.8, which has no AcceleratorError, says in a RuntimeError.
_DEVICE_ERROR = ("CUDA error:", "HIP error:")

# What torch says of an operation under torch.use_deterministic_algorithms.
_NOT_DETERMINISTIC = " does not have a deterministic implementation"

# What DistributedDataParallel says in the step after one in which backward did not come to a parameter.
_UNUSED = "find_unused_parameters=True"

Scalar = float | DeviceScalar

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StopOnSignal:
    """While entered, a signal only asks to stop; the training looks at `requested` after each step.

    A second request that is a Ctrl-C ends the process at once, as if this were not here: Ctrl-C twice, or one
    some seconds after another signal (StopRequests). A process that exits on request ignores the other
    signals from then on.
    """

    def __init__(self) -> None:
        self.requested = ""
        """Name of the signal that requested a stop, empty until then."""
        self._before: dict[int, Any] = {}
        self._requests = StopRequests()

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What signals a whole job has its signal passed on, too: that may come after the training has saved,
        # and would turn its exit code, which says so, into a kill.
        is_ending = bool(self.requested) and isinstance(error, SystemExit)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if is_ending and number != signal.SIGINT else handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        is_new = self._requests.is_new(number)
        if self.requested and number == signal.SIGINT and is_new:
            raise KeyboardInterrupt
        if self.requested and not is_new:
            return
        self.requested = signal.Signals(number).name
        # os.write and not print: print is not reentrant, and the signal may have come within one.
        with suppress(OSError):  # a terminal that is gone, or a full disk, is no reason not to save
            os.write(2, f"\n{self.requested}: {SAYS_STOPPING}\n".encode())


@dataclass(frozen=True)
class StepSamples:
    """The samples of a step, by rank."""

    parts: Sequence[Tensor]
    """Indices of each rank's samples."""
    losses: Tensor | None = None
    """Loss of each rank, where there are several."""

    def suspects(self) -> dict[str, list[int]]:
        """`nonfinite_ranks` and the `sample_indices` of their parts; all where no loss says which."""
        ranks = list(range(len(self.parts)))
        if self.losses is not None:
            finite = self.losses.isfinite().tolist()
            # Gradients can overflow though every loss is finite; then all ranks are suspect.
            ranks = [rank for rank in ranks if not finite[rank]] or ranks
        indices = [index for rank in ranks for index in self.parts[rank].tolist()]
        return {"nonfinite_ranks": ranks, "sample_indices": indices}


class Buffers:
    """Buffers that a forward pass changes, such as batch norm's running mean: a NaN would stay in them."""

    def __init__(self, model: nn.Module | None) -> None:
        """Keep the buffers of `model`; nothing without one."""
        self._kept = [(buffer, buffer.clone()) for buffer in (model.buffers() if model else ())]

    def keep(self) -> None:
        """Save the current values."""
        for buffer, kept in self._kept:
            kept.copy_(buffer)

    def put_back(self) -> None:
        """Restore the saved values."""
        for buffer, kept in self._kept:
            buffer.copy_(kept)


class FiniteWatch:
    """Raises NonFiniteError when a loss or gradient norm is NaN or infinite.

    On a CPU that is before the optimizer step. On a GPU values are looked at when they have arrived, a few
    steps later, so that training never waits; `wait` before a checkpoint keeps spoiled weights out of it.
    With `max_skips` so many steps in a row may be skipped first, which on a GPU waits for each step's values.
    """

    def __init__(
        self,
        record: Callable[..., object],
        name: str = "",
        *,
        max_skips: int = 0,
        skips: int = 0,
        pool: DevicePool = POOL,
    ) -> None:
        """`record(step, train_loss=…, grad_norm=…)` is called with the bad values, and what is known of them.

        Those of an optimizer apart have its `name`: NAME_loss, NAME_grad_norm. `skips` is how many steps were
        skipped just before the first one.
        """
        self._record = record
        self._names = (f"{name}_loss", f"{name}_grad_norm") if name else ("train_loss", "grad_norm")
        self._max_skips = max_skips
        self.skips = skips
        """Steps in a row that were not finite, up to the latest: above 0 that one is to be skipped."""
        self._pool = pool
        self._in_flight: deque[tuple[int, DeviceScalar, DeviceScalar, StepSamples | None]] = deque()

    def look(
        self, step: int, loss: Tensor, grad_norm: Tensor, samples: StepSamples | None = None
    ) -> tuple[Scalar, Scalar]:
        """Note the values of a step; raise if these, or earlier ones that have arrived, are not finite.

        Returns the two as numbers where that costs no waiting, else on their way, as a record takes them.
        """
        if not loss.is_cuda or self._max_skips:
            values = loss.item(), grad_norm.item()
            self._check(step, *values, samples)
            return values
        train_loss, norm = copy_scalars([loss, grad_norm], self._pool)
        self._in_flight.append((step, train_loss, norm, samples))
        # In order of the steps, so that the first bad one is reported and not one that it spoiled.
        while self._in_flight and all(scalar.arrived() for scalar in self._in_flight[0][1:3]):
            self._check_oldest()
        return train_loss, norm

    def wait(self) -> None:
        """Look at everything that was noted, waiting for the device."""
        while self._in_flight:
            self._check_oldest()

    def _check_oldest(self) -> None:
        step, loss, grad_norm, samples = self._in_flight.popleft()
        self._check(step, loss.item(), grad_norm.item(), samples)

    def _check(self, step: int, loss: float, grad_norm: float, samples: StepSamples | None) -> None:
        if math.isfinite(loss) and math.isfinite(grad_norm):
            self.skips = 0
            return
        about: dict[str, Any] = samples.suspects() if samples else {}
        self.skips += 1
        if self.skips <= self._max_skips:
            about["skipped"] = True
        self._record(step, **dict(zip(self._names, (loss, grad_norm), strict=True)), **about)
        if self.skips <= self._max_skips:
            print(f"step {step}: loss {loss}, gradient norm {grad_norm}: skipped, weights stay as they are")
            return
        on_ranks = ", ".join(map(str, about["nonfinite_ranks"])) if samples and len(samples.parts) > 1 else ""
        raise NonFiniteError(
            f"step {step}: loss {loss}, gradient norm {grad_norm}"
            + (f", on rank {on_ranks}" if on_ranks else "")
            + (f", after {self._max_skips} skipped steps" if self._max_skips else ""),
            hint="lower LEARNING_RATE or raise SCHEDULE_WARMUP_FRACTION; earlier checkpoints are intact",
        )


@contextmanager
def named_causes() -> Iterator[None]:
    """Turn memory and device errors into OutOfMemoryError, or set `cause` on the error itself.

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
        if _UNUSED in said:
            raise TrainingError(
                "a step's loss does not depend on all parameters, whose gradients the processes wait for",
                hint="use every output of the model in the loss, or set DDP_FIND_UNUSED=y",
            ) from error
        if _NOT_DETERMINISTIC in said:
            raise TrainingError(
                said.partition(_NOT_DETERMINISTIC)[0] + _NOT_DETERMINISTIC,
                hint="use an operation that has one in the model, or set DETERMINISTIC=n",
            ) from error
        if isinstance(error, getattr(torch, "AcceleratorError", ())) or said.startswith(_DEVICE_ERROR):
            error.cause = DEVICE  # type: ignore[attr-defined]
        raise
