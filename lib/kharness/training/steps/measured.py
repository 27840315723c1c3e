"""Trainings that only look: `--dry-run`, trials of automatic settings, `make inspect-batch`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from kharness.runs.exit_codes import EXIT_STOPPED
from kharness.training.distributed.world import ALONE
from kharness.training.model_check import EnoughMeasured, MeasuredPhases
from kharness.training.samples_of_steps import Sample, step_indices
from kharness.training.setup import Setup, Split
from kharness.training.steps.training import Training


class MeasuredTraining:
    """A training whose run is in a folder that nobody keeps; what is not defined here the Training does."""

    def __init__(self, training: Training[Any]) -> None:
        self._training = training

    def __getattr__(self, name: str) -> Any:
        return getattr(self._training, name)


class CheckedTraining(MeasuredTraining):
    """Takes steps, or their first part, until enough is measured; then an evaluation ends it."""

    def __init__(self, training: Training[Any], check: MeasuredPhases) -> None:
        super().__init__(training)
        self._check = check

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


class InspectedTraining(MeasuredTraining):
    """Takes the step INSPECT_STEP sample by sample, and notes the loss of each; no weight changes."""

    evaluation_is_due = False

    def __init__(self, training: Training[Any], setup: Setup[Any], *, ranks: int) -> None:
        """`ranks` is how many processes shared the step."""
        super().__init__(training)
        self.samples: list[Sample] = []
        self._setup, self._ranks = setup, ranks
        self._inputs = self._targets = torch.empty(0)
        self._loss = 0.0

    def steps(self) -> Iterator[Tensor]:
        batch = step_indices(self._setup, self._setup.options.INSPECT_STEP)
        for rank, part in enumerate(batch.tensor_split(self._ranks)):
            for index in part.split(1):
                self._setup.model.eval()
                self._loss = 0.0
                yield self._training.begin_step(index)
                inputs, targets = self._inputs[0].cpu(), self._targets[0].cpu()
                self.samples.append(Sample(int(index), rank, inputs, targets, self._loss))
        raise EnoughMeasured

    def batch(self, split: Split[tuple[Tensor, Tensor]], indices: Tensor) -> tuple[Tensor, Tensor]:
        self._inputs, self._targets = self._training.batch(split, indices)
        return self._inputs, self._targets

    def accumulate(
        self, loss: Tensor, *, share: float = 1.0, report: Tensor | None = None, **how: object
    ) -> None:
        self._loss += share * (loss if report is None else report).item()

    def update(self, loss: Tensor | None = None, *, report: Tensor | None = None, **how: object) -> None:
        if loss is not None:
            self.accumulate(loss, report=report)

    def update_apart(self, name: str, loss: Tensor, **how: object) -> None: ...
