"""Report of a model check, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from kharness.training.due import Every
from kharness.training.model_check.memory import StepMemory
from kharness.training.setup import Setup
from monitoring.counts import counted
from monitoring.telemetry.phases import PHASES


@dataclass(frozen=True)
class CheckedModel:
    """Sizes in bytes, times in seconds; None for what was not measured."""

    parameters: int
    trained: int
    """Number of parameters with a gradient."""
    estimated: StepMemory
    measured: StepMemory | None
    flops: int | None
    """FLOPs of the forward and backward passes of a step, on all ranks."""
    num_steps: int
    parts: int
    """Micro-batches per step and rank."""
    step_seconds: float | None
    evaluation_seconds: float | None
    evaluations: int
    save_seconds: float | None
    saves: int
    most_seconds: float
    """MAX_TIME; infinite without."""
    peak: int
    is_gpu: bool

    @classmethod
    def of(
        cls,
        setup: Setup[Any],
        *,
        estimated: StepMemory,
        measured: StepMemory | None,
        flops: int | None,
        samples: int,
        phases: Mapping[str, float] | None,
        evaluation: tuple[float, int] | None,
        save_seconds: float | None,
        peak: int,
    ) -> CheckedModel:
        """Made of one micro-batch of `samples`, its `phases`, and an `evaluation`'s seconds and samples."""
        options, batches, num_steps = setup.options, setup.batches, setup.schedule.num_steps
        parameters = list(setup.model.parameters())
        of_rank = math.ceil(batches.batch_size / setup.world.size)
        step_seconds = None
        if phases is not None:
            once = phases.get(PHASES[-1], 0.0)
            step_seconds = (sum(phases.values()) - once) * of_rank / samples + once
        interval = options.EVAL_INTERVAL or batches.steps_per_epoch
        every = Every.checkpoints(options.CHECKPOINT_EVERY, options.CHECKPOINT_UNIT)
        between = every.steps or every.epochs * batches.steps_per_epoch
        return cls(
            parameters=sum(parameter.numel() for parameter in parameters),
            trained=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
            estimated=estimated,
            measured=measured,
            flops=None if flops is None else round(flops * batches.batch_size / samples),
            num_steps=num_steps,
            parts=math.ceil(of_rank / samples),
            step_seconds=step_seconds,
            evaluation_seconds=evaluation and evaluation[0] * _validated(setup) / evaluation[1],
            evaluations=math.ceil(num_steps / interval) + bool(options.EVAL_FIRST),
            save_seconds=save_seconds,
            saves=math.ceil(num_steps / between) if between else 1,
            most_seconds=60 * options.MAX_TIME or math.inf,
            peak=peak,
            is_gpu=setup.device.is_gpu,
        )

    @property
    def expected_seconds(self) -> float | None:
        """Expected seconds of the planned training, without its tests, samples and start-up."""
        if self.step_seconds is None:
            return None
        others = self.evaluations * (self.evaluation_seconds or 0) + self.saves * (self.save_seconds or 0)
        return min(self.num_steps * self.step_seconds + others, self.most_seconds)

    def __str__(self) -> str:
        frozen = self.parameters - self.trained
        lines = [
            f"parameters: {self.parameters:,}" + (f", {frozen:,} of them not trained" if frozen else ""),
            *self._memory_lines(),
            f"FLOPs per step: {_metric(self.flops)}, forward and backward",
        ]
        if self.step_seconds is not None:
            parts = f", {self.parts} micro-batches" if self.parts > 1 else ""
            rate = f", {_metric(self.flops / self.step_seconds)} FLOP/s" if self.flops else ""
            lines.append(f"step: {_shown_seconds(self.step_seconds)}{parts}{rate}")
        if self.evaluation_seconds is not None:
            lines.append(f"evaluation: {_shown_seconds(self.evaluation_seconds)}, by its first batch")
        if self.save_seconds is not None:
            lines.append(f"checkpoint: {_shown_seconds(self.save_seconds)}")
        if self.expected_seconds is not None:
            lines.append(
                f"expected: {_shown_seconds(self.expected_seconds)} for {counted(self.num_steps, 'step')}, "
                f"{counted(self.evaluations, 'evaluation')} and {counted(self.saves, 'checkpoint')}"
            )
        return "\n".join(lines)

    def _memory_lines(self) -> list[str]:
        rows = [(field.name.replace("_", " "), field.name) for field in fields(StepMemory)]
        lines = [f"{'memory of a step':<18}{'estimated':>12}{'measured':>12}"]
        for title, name in [*rows, ("total", "total")]:
            known = [getattr(memory, name, None) for memory in (self.estimated, self.measured)]
            lines.append(f"  {title:<16}" + "".join(f"{in_units(value):>12}" for value in known))
        if self.measured is not None:
            of = "torch on the GPU" if self.is_gpu else "this process, with Python, torch and the data"
            lines.append(f"  peak of {of}: {in_units(self.peak)}")
        return lines


def in_units(num_bytes: int | None) -> str:
    """In kB, MB or GB, of a thousand each; `-` where it is not known."""
    if num_bytes is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= size:
            return f"{num_bytes / size:.2f} {unit}"
    return f"{num_bytes / 1e3:.1f} kB"


def _metric(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3g}"


def _shown_seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    return str(timedelta(seconds=round(seconds))) + " h"


def _validated(setup: Setup[Any]) -> int:
    """Samples of an evaluation."""
    options, found = setup.options, int(setup.data.sizes.get("validation", 0))
    wanted = options.EVAL_SAMPLES * options.EVAL_BATCH_SIZE if "EVAL_SAMPLES" in options.values else 0
    return min(found, wanted) if wanted else found
