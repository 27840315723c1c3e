"""Time and memory of one training step with its real shapes, measured where a training marks its phases."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from kharness.training.errors import OutOfMemoryError
from kharness.training.fake_tensors import ModelWithoutValues, SavedTensors, num_samples
from kharness.training.model_check.memory import (
    StepMemory,
    estimated_memory,
    free_memory,
    measured_memory,
)
from kharness.training.model_check.report import CheckedModel, in_units
from kharness.training.setup import Setup
from monitoring.telemetry.phases import PARTS, PHASES

# The first step of a process is slower than any other: short ones are repeated for the time.
MOST_STEPS = 5
SECONDS = 1.0


class EnoughMeasured(BaseException):
    """Ends a check from inside an evaluation; no Exception, so that no model takes it for a failure."""


class MeasuredPhases:
    """The phases (monitoring.telemetry.phases) of a step, in seconds of its own; waiting is part of them."""

    def __init__(self, setup: Setup[Any]) -> None:
        self.setup = setup
        self.is_enough = False
        """Whether no further step is needed."""
        self._seconds: dict[str, float] = {}
        self._mark = 0.0

    def begin(self) -> None:
        """A step begins."""
        self._seconds = {}
        self._mark = self._now()

    def end(self, phase: str) -> None:
        """A phase ends."""
        now = self._now()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._mark
        self._mark = now

    def leave_out(self) -> None:
        """Waiting for other ranks is part of the time."""

    def own_work_done(self) -> None:
        """Ranks are not compared."""

    def waiting_stays(self) -> None:
        """Ranks are not compared."""

    def read(self) -> Mapping[str, float | None]:
        """The seconds of this step."""
        return {phase: self._seconds.get(phase) for phase in PHASES}

    def _now(self) -> float:
        if self.setup.device.is_gpu:
            torch.cuda.synchronize(self.setup.device.torch)
        return time.perf_counter()


class ModelCheck(MeasuredPhases):
    """A training that only takes a step to measure it."""

    def __init__(
        self, setup: Setup[Any], *, free: Callable[[torch.device], int | None] = free_memory
    ) -> None:
        super().__init__(setup)
        options = setup.options
        self._free = free
        self.part_size: int | None = options.MICRO_BATCH_SIZE if _has_parts(setup) else None
        """Samples of a step that are computed: one micro-batch."""
        self._estimated = estimated_memory(setup.model, options.OPTIMIZER, options.values)
        self._flops: int | None = None
        self._measured: StepMemory | None = None
        self._steps: list[dict[str, float]] = []
        self._samples = 0
        self._evaluated: tuple[float, int] | None = None
        self._saved_seconds: float | None = None
        self._saved = SavedTensors(setup.model)
        self._without_values = ModelWithoutValues(setup.model)
        self._counting = ExitStack()
        setup.model.register_forward_pre_hook(self._before_forward, with_kwargs=True)
        setup.model.register_forward_hook(self._after_forward, with_kwargs=True)

    def begin(self) -> None:
        """A step begins."""
        if not self._steps:
            self._counting.enter_context(self._saved.hooks())
        super().begin()

    def end(self, phase: str) -> None:
        """A phase ends; with the last of them the step."""
        super().end(phase)
        if phase in (PHASES[1], PARTS[1]):
            self._counting.close()
        if phase == PHASES[-1]:
            self._end_step()

    def saved(self, seconds: float) -> None:
        """A checkpoint was written."""
        self._saved_seconds = seconds

    def found(self) -> CheckedModel:
        """All that the step has shown."""
        quickest = min(self._steps, key=lambda step: sum(step.values()), default=None)
        return CheckedModel.of(
            self.setup,
            estimated=self._estimated,
            measured=self._measured,
            flops=self._flops,
            samples=self._samples,
            phases=quickest,
            evaluation=self._evaluated,
            save_seconds=self._saved_seconds,
            peak=self._peak(),
        )

    def _end_step(self) -> None:
        setup = self.setup
        if not self._steps:
            self._measured = measured_memory(setup.model, setup.optimizer, self._saved.num_bytes)
        self._steps.append(self._seconds)
        seconds = sum(sum(step.values()) for step in self._steps)
        self.is_enough = seconds >= SECONDS or len(self._steps) == MOST_STEPS

    def _before_forward(self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Before the first of all, estimate it, and end where it does not fit."""
        if not model.training or self._samples:
            if self.is_enough:
                self._mark = self._now()
            return
        self._samples = num_samples(inputs, named)
        activations, self._flops = self._without_values.step(inputs, named)
        self._estimated = replace(self._estimated, activations=activations)
        self._mark = self._now()
        whole, free = self._estimated.total, self._free(self.setup.device.torch)
        needed = whole and whole - self._estimated.weights
        if needed and free is not None and needed > free:
            print(self.found())
            lower = "MICRO_BATCH_SIZE" if _has_parts(self.setup) else "BATCH_SIZE"
            raise OutOfMemoryError(
                f"a step needs about {in_units(needed)} besides the weights; "
                f"{in_units(free)} are free on {self.setup.device.torch}",
                hint=f"lower {lower}, or choose a smaller model",
            )

    def _after_forward(
        self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], outputs: object
    ) -> None:
        """After the first of an evaluation everything is measured."""
        if self.is_enough and not model.training:
            self._evaluated = self._now() - self._mark, num_samples(inputs, named)
            raise EnoughMeasured

    def _peak(self) -> int:
        """The most bytes so far: of torch on a GPU, of this process on a CPU."""
        if self.setup.device.is_gpu:
            return torch.cuda.max_memory_allocated(self.setup.device.torch)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _has_parts(setup: Setup[Any]) -> bool:
    """Whether a step goes through the model in micro-batches."""
    return bool(setup.options.MICRO_BATCH_SIZE)
