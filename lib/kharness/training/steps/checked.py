"""A training that takes a step only to measure it, and keeps nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from torch import Tensor

from kharness.runs.exit_codes import EXIT_STOPPED
from kharness.training.checkpoint import Checkpoints
from kharness.training.guard import StopOnSignal
from kharness.training.model_check.step import EnoughMeasured, ModelCheck
from kharness.training.setup import DataT
from kharness.training.steps.training import Training
from monitoring import Run


class CheckedTraining(Training[DataT]):
    """Takes the first micro-batch of a step until it has been measured, then ends in the evaluation."""

    def __init__(self, check: ModelCheck, run: Run, checkpoints: Checkpoints, stop: StopOnSignal) -> None:
        super().__init__(check.setup, run, checkpoints, stop, step=0, phases=check)
        self._check = check

    def steps(self) -> Iterator[Tensor]:
        for indices in super().steps():
            yield indices[: self._check.part_size]

    @property
    def evaluation_is_due(self) -> bool:
        return self._is_over

    def evaluated(self, split: str, **metrics: float) -> None:
        raise EnoughMeasured

    def finish(self, **metrics: float) -> int:
        raise EnoughMeasured

    def end(self) -> None:
        """Write a checkpoint, and end the run."""
        before = time.perf_counter()
        self._save()
        self._check.saved(time.perf_counter() - before)
        self._run.finish(steps_done=self.step)

    @property
    def _is_over(self) -> bool:
        return self._check.is_enough

    def _end_step(self) -> None:
        if self._stop.requested:
            print(f"stopped by {self._stop.requested}; nothing is kept")
            sys.exit(EXIT_STOPPED)

    def _end_steps(self) -> None:
        """What a training saves here `end` saves."""
