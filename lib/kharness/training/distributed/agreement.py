"""The one exchange of all ranks in every step: their losses, stops and requests."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kharness.training.distributed.world import World
from kharness.training.guard import StopOnSignal

BETWEEN_ROUNDS = 0.05
"""Seconds, of trainings on GPUs: as long as a request may wait for the step that all follow in."""

# Steps between two rounds at most, however fast they are.
MOST_STEPS = 100


class StepAgreement:
    """The loss of each rank, and what one of them was requested to do: all follow in the same step.

    Each rank calls `exchange` once in each step, after backward and before the update; nothing else in a
    step waits for other ranks, but backward itself. One row of numbers per rank goes around:

    - its loss, by which the guard judges the step alike on every rank (FiniteWatch),
    - the signal that requested a stop, and whether MAX_TIME is used up,
    - how many requests of a user it has (`submit`), as from a control file, which only rank 0 needs to
      watch. The requests themselves follow in a second exchange, of such steps alone; from then on
      `requests` has them on every rank.

    What has an effect later than in the update is applied when the step ends (`Training.steps`). Timers of
    ranks need no exchange here: they are collected where all ranks make a record (`World.collected`).

    On a GPU the loss stays there and goes by NCCL, which nothing waits for. The rest goes by gloo, for which
    the processes wait, and which would take longer than a step of a small model: so it goes only in some
    steps, BETWEEN_ROUNDS apart. Of a training in one process nothing is exchanged, and a signal counts until
    the very end of a step.
    """

    def __init__(
        self,
        world: World,
        stop: StopOnSignal,
        *,
        is_out_of_time: Callable[[], bool],
        between_rounds: float = 0.0,
    ) -> None:
        """`is_out_of_time` says so of this rank.

        With `between_rounds` above 0 all but the losses is exchanged apart from them, so many seconds after
        the last time; by rank 0's clock, which says after each round how many steps that will be.
        """
        self.out_of_time = False
        """Whether MAX_TIME is used up, on any rank."""
        self.requests: list[Any] = []
        """The requests submitted before this step's exchange, in the same order on every rank."""
        self._world, self._stop, self._is_out_of_time = world, stop, is_out_of_time
        self._submitted: list[Any] = []
        self._signal = ""
        self._between_rounds = between_rounds
        self._steps_between = self._steps_since = 1
        self._last_round = time.monotonic()

    def submit(self, request: object) -> None:
        """Have every rank find a request of rank 0 in `requests`; any that can be pickled."""
        self._submitted.append(request)

    def exchange(self, loss: Tensor) -> Tensor:
        """The losses of all ranks, (ranks,), from each one's own of no dimension; waits for the others."""
        world = self._world
        if world.size == 1:
            self.out_of_time, self.requests = self._is_out_of_time(), self._submitted
            self._submitted = []
            return loss.reshape(1)
        self.requests = []
        if self._between_rounds:
            losses = world.gathered(loss)
            if self._steps_since >= self._steps_between:
                self._take(world.gathered(torch.tensor(self._own(), dtype=torch.float64)))
            else:
                self._steps_since += 1
            return losses
        # float64 holds a loss of any type, and such small numbers, bit for bit
        rows = world.gathered(torch.tensor([*self._own(), loss], dtype=torch.float64))
        self._take(rows)
        return rows[:, -1].to(loss.dtype)

    def _own(self) -> list[int]:
        """This rank's row, without its loss."""
        name = self._stop.requested
        return [
            signal.Signals[name] if name else 0,
            self._is_out_of_time(),
            len(self._submitted),
            self._next_round(),
        ]

    def _next_round(self) -> int:
        """How many steps the next round is away, if they take as long as those since the last round."""
        now = time.monotonic()
        seconds = (now - self._last_round) / self._steps_since
        self._last_round = now
        return max(1, min(MOST_STEPS, int(self._between_rounds / seconds))) if seconds else MOST_STEPS

    def _take(self, rows: Tensor) -> None:
        """Take the rows of all ranks: the first signal, time that is up, and requests."""
        number, out_of_time, num_requests = map(int, rows[:, :3].amax(0).tolist())
        self._steps_between, self._steps_since = int(rows[0, 3]), 1
        self._signal = signal.Signals(number).name if number else ""
        self.out_of_time = bool(out_of_time)
        submitted, self._submitted = self._submitted, []
        self.requests = self._world.of_main(submitted) if num_requests else []

    @property
    def stop_is_requested(self) -> bool:
        """Whether all are to stop after this step, by a signal to any rank."""
        if self._world.size == 1:
            return bool(self._stop.requested)
        if self._signal:  # else one that came since the exchange is for the next step
            self._stop.requested = self._signal
        return bool(self._signal)
