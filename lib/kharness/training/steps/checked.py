"""A training that takes a few steps only for what they show, and keeps nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from kharness.runs.exit_codes import EXIT_STOPPED
from kharness.training.checkpoint import Checkpoints
from kharness.training.distributed.world import ALONE
from kharness.training.guard import StopOnSignal
from kharness.training.model_check.step import EnoughMeasured
from kharness.training.setup import DataT, Setup
from kharness.training.steps.training import Training
from monitoring import Run
from monitoring.telemetry.phases import Phases


class StepWatch(Phases, Protocol):
    """The phases of a training that takes a few steps for what they show."""

    @property
    def part_size(self) -> int | None:
        """Samples of a step that are computed; None for all."""

    @property
    def is_enough(self) -> bool:
        """Whether no further step is needed."""


class CheckedTraining(Training[DataT]):
    """Takes the first part of a step until that has been measured, then ends in the evaluation."""

    def __init__(
        self, setup: Setup[DataT], run: Run, checkpoints: Checkpoints, stop: StopOnSignal, *, watch: StepWatch
    ) -> None:
        super().__init__(setup, run, checkpoints, stop, step=0, phases=watch)
        self._check = watch

    def steps(self) -> Iterator[Tensor]:
        for indices in super().steps():
            yield indices[: self._check.part_size]

    def update(
        self, loss: Tensor | None = None, *, clip_norm: float | None = None, report: Tensor | None = None
    ) -> None:
        super().update(loss, clip_norm=clip_norm, report=report)
        if self._is_over:  # the first batch of an evaluation ends it on each rank, and there may be but one
            self.world = ALONE

    @property
    def evaluation_is_due(self) -> bool:
        return self._is_over

    def evaluated(self, split: str, **metrics: float) -> None:
        raise EnoughMeasured

    def finish(self, **metrics: float) -> int:
        raise EnoughMeasured

    def end(self) -> None:
        """Write a checkpoint, and end the run."""
        self._save()
        self._run.finish(steps_done=self.step)

    @property
    def _is_over(self) -> bool:
        return self._check.is_enough

    def _end_step(self) -> None:
        if self._stop.requested:
            print(f"stopped by {self._stop.requested}; nothing is kept")
            sys.exit(EXIT_STOPPED)

    def _end_steps(self) -> None:
        """Save nothing: `end` does."""
