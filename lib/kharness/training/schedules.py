"""The learning rate of each step: a pure function, so a resumed run needs only its step.

Steps are counted from 0 to `num_steps - 1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from kharness.training.errors import TrainingError
from kharness.training.needs import check_warmup

# torch.optim.lr_scheduler.OneCycleLR's defaults: the first rate is peak / 25, the last is the first / 10,000.
_DIV_FACTOR = 25.0
_FINAL_DIV_FACTOR = 1e4


@dataclass(frozen=True)
class Schedule:
    """How the learning rate moves below its peak over a training."""

    name: str
    """constant, cosine, onecycle or stable."""
    peak: float
    num_steps: int
    warmup_fraction: float = 0.0
    decay_fraction: float = 0.0
    """Share of the last steps in which `stable` falls."""
    final: float = 0.0
    """Share of the peak at which `cosine` and `stable` end."""

    def __post_init__(self) -> None:
        if self.name not in _SHAPES:
            raise TrainingError(
                f"SCHEDULE={self.name} is not a known schedule", hint=f"known: {', '.join(_SHAPES)}"
            )

    @classmethod
    def read(cls, symbols: Mapping[str, Any], *, num_steps: int) -> Self:
        """The schedule that the configuration holds."""
        # Symbols of other schedules are absent.
        warmup = symbols.get("SCHEDULE_WARMUP_FRACTION", 0.0)
        if steps := symbols.get("WARMUP_STEPS", 0):
            check_warmup(steps, num_steps)
            warmup = steps / num_steps
        decay, final = symbols.get("SCHEDULE_DECAY_FRACTION", 0.0), symbols.get("SCHEDULE_FINAL", 0.0)
        return cls(symbols["SCHEDULE"], symbols["LEARNING_RATE"], num_steps, warmup, decay, final)

    @property
    def described(self) -> dict[str, Any]:
        """For records; what belongs to other schedules only is left out."""
        own = {"stable": ("decay_fraction", "final"), "cosine": ("final",)}.get(self.name, ())
        common = ("name", "peak", "num_steps", "warmup_fraction")
        used = [name for name in own if getattr(self, name)]
        return {name: getattr(self, name) for name in (*common, *used)}

    def __call__(self, step: int) -> float:
        """The learning rate of a step."""
        return _SHAPES[self.name](self, step)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this rate in every parameter group from the next step on, times its `rate_scale` if it has one."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate_scale", 1.0)


def _constant(schedule: Schedule, step: int) -> float:
    return schedule.peak


def _cosine(schedule: Schedule, step: int) -> float:
    """Linear up to the peak, then half a cosine that would reach zero one step after the last.

    Loshchilov and Hutter 2017 (one cycle of SGDR), with the warm-up of Goyal et al. 2017.
    """
    warmup = round(schedule.warmup_fraction * schedule.num_steps)
    if step < warmup:
        return schedule.peak * (step + 1) / warmup
    progress = (step - warmup) / (schedule.num_steps - warmup)
    last = schedule.peak * schedule.final
    return last + (schedule.peak - last) * (1 + math.cos(math.pi * progress)) / 2


def _stable(schedule: Schedule, step: int) -> float:
    """Linear up to the peak, level, then linear to the final rate, reached one step after the last.

    Zhai et al. 2022 (arXiv 2106.04560), with the linear end of Hägele et al. 2024 (arXiv 2405.18392).
    """
    warmup = round(schedule.warmup_fraction * schedule.num_steps)
    if step < warmup:
        return schedule.peak * (step + 1) / warmup
    falling = min(schedule.num_steps - warmup, round(schedule.decay_fraction * schedule.num_steps))
    left = schedule.num_steps - step
    share = min(1.0, left / falling) if falling else 1.0
    return schedule.peak * (schedule.final + (1 - schedule.final) * share)


def _onecycle(schedule: Schedule, step: int) -> float:
    """Cosine up from peak / 25, then cosine down to that / 10,000 in the last step.

    Smith and Topin 2019 as torch.optim.lr_scheduler.OneCycleLR has it, with a constant momentum.
    """
    initial = schedule.peak / _DIV_FACTOR
    top = schedule.warmup_fraction * schedule.num_steps - 1
    last = schedule.num_steps - 1
    if step <= top:
        return _cosine_between(initial, schedule.peak, step / top if top > 0 else 1.0)
    return _cosine_between(schedule.peak, initial / _FINAL_DIV_FACTOR, (step - top) / (last - top))


def _cosine_between(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


_SHAPES: dict[str, Callable[[Schedule, int], float]] = {
    "constant": _constant,
    "cosine": _cosine,
    "onecycle": _onecycle,
    "stable": _stable,
}
