"""A training that is only measured: for `--dry-run`, and for a trial of automatic settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from kharness.runs.exit_codes import EXIT_STOPPED
from kharness.training.distributed.world import ALONE
from kharness.training.model_check import EnoughMeasured, MeasuredPhases
from kharness.training.steps.training import Training


class CheckedTraining:
    """Takes steps, or their first part, until enough is measured; then an evaluation ends it.

    All else is what the Training does that it has, whose run is in a folder that nobody keeps.
    """

    def __init__(self, training: Training[Any], check: MeasuredPhases) -> None:
        self._training, self._check = training, check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._training, name)

    def steps(self) -> Iterator[Tensor]:
        setup, size = self._check.setup, self._check.part_size
        for batch in setup.batches:
            yield self._training.begin_step(batch[: size and size * setup.world.size])
            if stopped_by := self._training.stop.requested:
                print(f"stopped by {stopped_by}; nothing is kept")
                sys.exit(EXIT_STOPPED)
            if self._check.is_enough:
                break

    def update(self, loss: Tensor | None = None, **how: Any) -> None:
        self._training.update(loss, **how)
        if self._check.is_enough:
            self._training.begin_evaluation()
            # Its first batch ends the evaluation on each rank, and there may be but one.
            self._training.world = ALONE

    @property
    def evaluation_is_due(self) -> bool:
        return self._check.is_enough

    def evaluated(self, split: str, **metrics: float) -> None:
        raise EnoughMeasured

    def finish(self, **metrics: float) -> int:
        raise EnoughMeasured
