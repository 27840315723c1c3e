"""When an evaluation or a checkpoint is due, and how long a training lasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kharness.training.needs import check_batch, check_length, check_warmup, steps_per_epoch


@dataclass(frozen=True)
class Every:
    """Every `steps` steps or, where that is 0, at the end of every `epochs` epochs; never if both are 0."""

    epochs: int = 0
    steps: int = 0

    @classmethod
    def checkpoints(cls, every: int, unit: str) -> Self:
        """CHECKPOINT_EVERY in its CHECKPOINT_UNIT."""
        return cls(**{unit: every})

    def __bool__(self) -> bool:
        return bool(self.epochs or self.steps)

    def is_due(self, step: int, *, epoch: int | None) -> bool:
        """Whether it is due after a step; `epoch` (from 1) is the one that the step ends."""
        if self.steps:
            return step % self.steps == 0
        return bool(self.epochs and epoch and epoch % self.epochs == 0)


def check_plan(symbols: Mapping[str, Any], *, samples: int, tokens_per_sample: int = 0) -> None:
    """TrainingError for a batch or a warm-up that is too long for so many training samples."""
    batch_size = symbols["BATCH_SIZE"]
    check_batch(batch_size, samples)
    num_steps = planned_steps(
        symbols,
        steps_per_epoch=steps_per_epoch(samples, batch_size),
        tokens_per_step=tokens_per_sample * batch_size or None,
    )
    check_warmup(symbols.get("WARMUP_STEPS", 0), num_steps)


def planned_steps(
    symbols: Mapping[str, Any], *, steps_per_epoch: int, tokens_per_step: int | None = None
) -> int:
    """The least that NUM_EPOCHS, MAX_STEPS and MAX_TOKENS allow, at least 1; TrainingError without any."""
    check_length(symbols)
    limits: dict[str, int] = {
        "NUM_EPOCHS": symbols["NUM_EPOCHS"] * steps_per_epoch,
        "MAX_STEPS": symbols["MAX_STEPS"],
        "MAX_TOKENS": symbols.get("MAX_TOKENS", 0) // (tokens_per_step or 1),
    }
    asked = [limit for name, limit in limits.items() if symbols.get(name)]
    return max(1, min(asked))


def few_validations(interval: int, *, num_steps: int, is_evaluated_first: bool) -> str:
    """A note on a plan that validates so seldom that no curve can be drawn; empty for any other.

    Trackers draw a line from two points on (docs/training.md). The last step is always evaluated.
    """
    during = (num_steps - 1) // interval
    points = during + 1 + is_evaluated_first
    if points < 2:
        return f"{points} validation point in {num_steps:,} steps: no curve; lower EVAL_INTERVAL"
    if is_evaluated_first and not during:
        return (
            f"EVAL_INTERVAL={interval} is not below the {num_steps:,} steps: "
            "validation before the first step and after the last only"
        )
    return ""
