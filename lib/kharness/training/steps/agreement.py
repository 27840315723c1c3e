"""What all ranks of a training agree on in each step, by one exchange."""

from __future__ import annotations

import signal
from collections.abc import Callable

import torch
from torch import Tensor

from kharness.training.distributed.world import World
from kharness.training.guard import StopOnSignal


class StepAgreement:
    """The loss of each rank, and what one of them was requested to do: all follow in the same step.

    Each rank calls `exchange` once in each step, after backward and before the update; nothing else in a
    step waits for other ranks, but backward itself. One row of numbers per rank goes around:

    - its loss, by which the guard judges the step alike on every rank (kharness.training.steps.update),
    - the signal that requested a stop, and whether MAX_TIME is used up,
    - how many requests of a user it has (`submit`), as from a control file, which only rank 0 needs to
      watch. The requests themselves follow in a second exchange, of such steps alone; from then on
      `requests` has them on every rank.

    What has an effect later than in the update is applied when the step ends (`Training.steps`). Timers of
    ranks need no exchange here: they are collected where all ranks make a record (`World.collected`).

    On a GPU the loss stays there and goes by NCCL, which nothing waits for; the rest goes by gloo. Of a
    training in one process nothing is exchanged, and a signal counts until the very end of a step.
    """

    def __init__(self, world: World, stop: StopOnSignal, *, is_out_of_time: Callable[[], bool]) -> None:
        """`is_out_of_time` says so of this rank."""
        self.out_of_time = False
        """Whether MAX_TIME is used up, on any rank."""
        self.requests: list[object] = []
        """What was submitted before this step's exchange, the same on every rank and in the same order."""
        self._world, self._stop, self._is_out_of_time = world, stop, is_out_of_time
        self._submitted: list[object] = []
        self._signal = ""

    def submit(self, request: object) -> None:
        """Have every rank find a request of rank 0 in `requests`; any that can be pickled."""
        self._submitted.append(request)

    def exchange(self, loss: Tensor) -> Tensor:
        """The losses of all ranks, (ranks,), from each one's own of no dimension; waits for the others."""
        world, submitted, self._submitted = self._world, self._submitted, []
        if world.size == 1:
            self.out_of_time, self.requests = self._is_out_of_time(), submitted
            return loss.reshape(1)
        name = self._stop.requested
        own = [signal.Signals[name] if name else 0, self._is_out_of_time(), len(submitted)]
        if loss.is_cuda:
            losses, rows = world.gathered(loss), world.gathered(torch.tensor(own))
        else:  # float64 holds a loss of any type, and such small numbers, bit for bit
            all_rows = world.gathered(torch.tensor([loss, *own], dtype=torch.float64))
            losses, rows = all_rows[:, 0].to(loss.dtype), all_rows[:, 1:]
        number, out_of_time, num_requests = map(int, rows.amax(0).tolist())
        self._signal = signal.Signals(number).name if number else ""
        self.out_of_time = bool(out_of_time)
        self.requests = world.of_main(submitted) if num_requests else []
        return losses

    @property
    def stop_is_requested(self) -> bool:
        """Whether all are to stop after this step, by a signal to any rank."""
        if self._world.size == 1:
            return bool(self._stop.requested)
        if self._signal:  # else one that came since the exchange is for the next step
            self._stop.requested = self._signal
        return bool(self._signal)
