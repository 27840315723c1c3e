"""The learning rate of each step: a pure function, so a resumed run needs only its step.

Steps are counted from 0 to `num_steps - 1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch

from kharness.config.options import Options
from kharness.training.errors import TrainingError
from kharness.training.needs import check_warmup

# torch.optim.lr_scheduler.OneCycleLR's defaults: the first rate is peak / 25, the last is the first / 10,000.
_DIV_FACTOR = 25.0
_FINAL_DIV_FACTOR = 1e4

_OPTION_NAMES = ("momentum", "beta1", "beta2", "weight_decay")
_NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?"
_OPTION_SCHEDULE = re.compile(
    rf"(?P<name>\w+)=(?P<start>{_NUMBER})\.\.(?P<end>{_NUMBER})"
    r"@(?P<first>\d+(?:\.\d+)?%|\d+)\.\.(?P<last>\d+(?:\.\d+)?%|\d+)"
)


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
    def read(cls, options: Options, *, num_steps: int) -> Self:
        """The schedule that the options describe; those of other schedules are None."""
        warmup = options.SCHEDULE_WARMUP_FRACTION or 0.0
        if steps := options.WARMUP_STEPS:
            check_warmup(steps, num_steps)
            warmup = steps / num_steps
        decay, final = options.SCHEDULE_DECAY_FRACTION or 0.0, options.SCHEDULE_FINAL or 0.0
        return cls(options.SCHEDULE, options.LEARNING_RATE, num_steps, warmup, decay, final)

    @property
    def described(self) -> dict[str, Any]:
        """Its parameters for records; what belongs to other schedules only is left out."""
        own = {"stable": ("decay_fraction", "final"), "cosine": ("final",)}.get(self.name, ())
        common = ("name", "peak", "num_steps", "warmup_fraction")
        used = [name for name in own if getattr(self, name)]
        return {name: getattr(self, name) for name in (*common, *used)}

    def __call__(self, step: int) -> float:
        """The learning rate of a step; `cosine` and `stable` rise linearly first (Goyal et al. 2017)."""
        if self.name in ("cosine", "stable") and step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        return _SHAPES[self.name](self, step)

    @cached_property
    def warmup(self) -> int:
        """Steps of the warm-up."""
        return round(self.warmup_fraction * self.num_steps)


@dataclass(frozen=True)
class OptionSchedule:
    """An option of the optimizer that moves along a line between two steps, and is level outside of them."""

    name: str
    """momentum, beta1, beta2 or weight_decay."""
    start: float
    end: float
    first: float
    """The last step that has `start`, counted from 0."""
    last: float
    """The first step that has `end`."""

    def __call__(self, step: int) -> float:
        """The option's value in a step."""
        share = (step - self.first) / (self.last - self.first) if self.last > self.first else 1.0
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))


class OptionSchedules:
    """The schedules of SCHEDULE_OPTIONS: those of momentum, betas and weight decay.

    Jordan et al. 2024 (modded-nanogpt) move Muon's momentum from 0.85 to 0.95 in the first 300 steps.
    """

    def __init__(self, text: str, optimizer: torch.optim.Optimizer, *, num_steps: int) -> None:
        """TrainingError for a text that is none, or an option that the optimizer does not have."""
        self._optimizer = optimizer
        # The groups that have each option, looked for once: a weight decay that a schedule has moved to 0
        # would look like that of a norm or bias, which has none that could move.
        places = {
            name: [place for place, group in enumerate(optimizer.param_groups) if _has(group, name)]
            for name in _OPTION_NAMES
        }
        self._moved: list[tuple[OptionSchedule, list[int]]] = []
        for word in text.split():
            schedule = _option_schedule(word, num_steps)
            if not places[schedule.name]:
                own = [name for name, found in places.items() if found]
                raise TrainingError(
                    f"SCHEDULE_OPTIONS: this optimizer has no {schedule.name} that could move",
                    hint=f"it has: {', '.join(own) or 'none of ' + ', '.join(_OPTION_NAMES)}",
                )
            self._moved.append((schedule, places[schedule.name]))

    def set(self, step: int) -> dict[str, float]:
        """Give the optimizer the values of a step, and return them."""
        values = {}
        for schedule, places in self._moved:
            name, value = schedule.name, schedule(step)
            values[name] = value
            for group in (self._optimizer.param_groups[place] for place in places):
                if name.startswith("beta"):
                    betas = list(group["betas"])
                    betas[int(name[-1]) - 1] = value
                    group["betas"] = tuple(betas)
                else:
                    group[name] = value
        return values


def _has(group: dict[str, Any], name: str) -> bool:
    """Whether a group has an option that can move."""
    if name.startswith("beta"):
        return "betas" in group
    return name in group and (name != "weight_decay" or bool(group[name]))


def _option_schedule(word: str, num_steps: int) -> OptionSchedule:
    """The one that `NAME=FROM..TO@FIRST..LAST` describes: steps, or percentages of the training."""
    found = _OPTION_SCHEDULE.fullmatch(word)
    if found is None or found["name"] not in _OPTION_NAMES:
        raise TrainingError(
            f"SCHEDULE_OPTIONS: {word!r} is not NAME=FROM..TO@FIRST..LAST",
            hint=f"NAME is one of {', '.join(_OPTION_NAMES)}, as in momentum=0.85..0.95@0..300 or "
            "weight_decay=0.1..0@50%..100%",
        )
    first, last = (
        float(found[name].rstrip("%")) * (num_steps / 100 if found[name].endswith("%") else 1)
        for name in ("first", "last")
    )
    if first > last:
        raise TrainingError(
            f"SCHEDULE_OPTIONS: {word!r} ends before it begins", hint="write the earlier step first"
        )
    return OptionSchedule(found["name"], float(found["start"]), float(found["end"]), first, last)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this rate in every parameter group from the next step on, times its `rate_scale` if it has one."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate_scale", 1.0)


def _constant(schedule: Schedule, step: int) -> float:
    return schedule.peak


def _cosine(schedule: Schedule, step: int) -> float:
    """Half a cosine from the peak on that would reach zero one step after the last.

    Loshchilov and Hutter 2017 (one cycle of SGDR).
    """
    progress = (step - schedule.warmup) / (schedule.num_steps - schedule.warmup)
    last = schedule.peak * schedule.final
    return last + (schedule.peak - last) * (1 + math.cos(math.pi * progress)) / 2


def _stable(schedule: Schedule, step: int) -> float:
    """Level at the peak, then linear to the final rate, reached one step after the last.

    Zhai et al. 2022 (arXiv 2106.04560), with the linear end of Hägele et al. 2024 (arXiv 2405.18392).
    """
    falling = min(schedule.num_steps - schedule.warmup, round(schedule.decay_fraction * schedule.num_steps))
    left = schedule.num_steps - step
    share = min(1.0, left / falling) if falling else 1.0
    return schedule.peak * (schedule.final + (1 - schedule.final) * share)


def _onecycle(schedule: Schedule, step: int) -> float:
    """Cosine up from peak / 25, then cosine down to that / 10,000 in the last step.

    Smith and Topin 2019 as torch.optim.lr_scheduler.OneCycleLR has it, with a constant momentum.
    """
    initial = schedule.peak / _DIV_FACTOR
    # In torch's convention the first step is 0 and the peak is in step warmup - 1; the tests compare with it.
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
