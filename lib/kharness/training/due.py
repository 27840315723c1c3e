"""When an evaluation or a checkpoint is due."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Every:
    """Every `steps` steps or, where that is 0, at the end of every `epochs` epochs; never if both are 0."""

    epochs: int = 0
    steps: int = 0

    def __bool__(self) -> bool:
        return bool(self.epochs or self.steps)

    def is_due(self, step: int, *, epoch: int | None) -> bool:
        """Whether it is due after a step; `epoch` (from 1) is the one that the step ends."""
        if self.steps:
            return step % self.steps == 0
        return bool(self.epochs and epoch and epoch % self.epochs == 0)
