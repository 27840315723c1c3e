"""Steps that are taken only for what they show: of `--dry-run`, and of a trial of automatic settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor

from kharness.runs.exit_codes import EXIT_STOPPED
from kharness.training.checkpoint import Checkpoints
from kharness.training.distributed.world import ALONE, World
from kharness.training.setup import Setup
from kharness.training.steps.kept import Purpose, save
from kharness.training.steps.parts import StepParts
from monitoring.telemetry.phases import Phases


class StepWatch(Phases, Protocol):
    """The phases of a training that takes a few steps for what they show."""

    @property
    def part_size(self) -> int | None:
        """Samples of a step that are computed; None for all."""

    @property
    def is_enough(self) -> bool:
        """Whether no further step is needed."""


class CheckedSteps(Purpose):
    """Steps of which the first part is measured; they end in an evaluation."""

    def __init__(self, setup: Setup[Any], parts: StepParts, watch: StepWatch) -> None:
        super().__init__(setup)
        self._parts, self._watch = parts, watch

    @property
    def world(self) -> World:
        """The first batch of the evaluation ends it on each rank, and there may be but one."""
        return ALONE if self._watch.is_enough else self._setup.world

    def batches(self) -> Iterator[Tensor]:
        batches, size = iter(self._setup.batches), self._watch.part_size
        while not self._watch.is_enough:
            yield next(batches)[: size and size * self._setup.world.size]

    @property
    def evaluation_is_due(self) -> bool:
        return self._watch.is_enough

    def end_step(self) -> bool:
        if stopped_by := self._parts.stop.requested:
            print(f"stopped by {stopped_by}; nothing is kept")
            sys.exit(EXIT_STOPPED)
        return True

    def end(self, checkpoints: Checkpoints) -> None:
        """Write a checkpoint, and end the run."""
        save(self._setup, self._parts, checkpoints, self.step)
        self._parts.run.finish(steps_done=self.step)
