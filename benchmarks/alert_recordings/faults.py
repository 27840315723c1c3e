"""Faults done to a training in this process: batches, gradients and times that are as they should not be."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.alert_recordings.settings import Fault
from kharness.training.steps.training import Training
from monitoring.telemetry import pace


class WorkClock:
    """Seconds of CPU time, and of the sleeps done here.

    Other programs that take the processor do not count. Those that take its caches and its other thread do:
    what they cost is measured by the time of a computation that is always the same.
    """

    def __init__(self) -> None:
        self._apart = 0.0
        self._matrix = torch.ones(96, 96)
        self.machine: list[float] = []
        """Seconds of that computation, before each step."""

    def perf_counter(self) -> float:
        return time.process_time() + self._apart

    def sleep(self, seconds: float) -> None:
        before = time.perf_counter()
        time.sleep(seconds)
        self._apart += time.perf_counter() - before

    def measure(self) -> None:
        before = time.process_time()
        for _ in range(4):
            self._matrix @ self._matrix
        taken = time.process_time() - before
        self._apart -= taken
        self.machine.append(taken)


def inject(faults: Sequence[Fault], *, steps: int, seed: int, by_work: bool = True) -> WorkClock:
    """Have the trainings of this process do these faults, and time their steps by the returned clock.

    Without `by_work` they are timed by the wall clock, as ever.
    """
    clock, noise = WorkClock(), torch.Generator().manual_seed(seed)
    if by_work:
        vars(pace)["time"] = clock
    slow = _Slowness(clock, [fault for fault in faults if fault.kind.startswith("slow")], steps)
    whole, add, apply = Training.batch, Training.accumulate, Training.update
    now = 0

    def batch(self: Training[Any], split: Any, indices: Tensor) -> Any:
        nonlocal now
        now = self.step + 1
        inputs, targets = whole(self, split, indices)
        if by_work:
            clock.measure()
        slow.begin_step(now)
        for fault in faults:
            if now in fault:
                inputs, targets = _spoiled(fault, inputs, targets, indices, noise)
        return inputs, targets

    def added(self: Training[Any], loss: Tensor, **named: Any) -> None:
        broken = any(fault.kind == "nan" and now in fault for fault in faults)
        add(self, loss * float("nan") if broken else loss, **named)

    def applied(
        self: Training[Any], loss: Tensor | None = None, *, report: Tensor | None = None, **named: Any
    ) -> None:
        if loss is not None:
            self.accumulate(loss, report=report)
        for fault in faults:
            if fault.kind in ("explosion", "vanishing") and self.step + 1 in fault:
                for gradient in self.gradients().values():
                    gradient.mul_(fault.size)
        apply(self, **named)

    _replace(Training, "batch", batch)
    _replace(Training, "accumulate", added)
    _replace(Training, "update", applied)
    return clock


def _replace(owner: type, name: str, function: Callable[..., Any]) -> None:
    setattr(owner, name, function)


def _spoiled(
    fault: Fault, inputs: Tensor, targets: Tensor, indices: Tensor, noise: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A batch with random targets, with inputs of another scale (numbers) or without order (tokens)."""
    if fault.kind == "random_labels" or (fault.kind == "wrong_inputs" and not inputs.is_floating_point()):
        drawn = torch.randint(0, int(targets.max()) + 1, targets.shape, generator=noise)
        return inputs, drawn
    if fault.kind == "wrong_inputs":
        return inputs * fault.size, targets
    if fault.kind in ("label_noise", "shuffled"):
        # The same images have the same wrong label each time.
        scrambled = (indices * 7919 + 13) % 104729
        wrong = (scrambled % 1000).float() / 1000 < fault.size
        return inputs, torch.where(wrong, (scrambled // 1000) % 10, targets)
    return inputs, targets


class _Slowness:
    """Sleeps in a step what a slow one would take longer, or computes for as long."""

    def __init__(self, clock: WorkClock, faults: Sequence[Fault], steps: int) -> None:
        self._clock, self._faults, self._steps = clock, faults, steps
        self._last: float | None = None
        self._work: list[float] = []

    def begin_step(self, step: int) -> None:
        now = time.process_time()
        if self._last is not None:
            self._work.append(now - self._last)
        self._last = now
        usual = statistics.median(self._work[-50:]) if self._work else 0.0
        for fault in self._faults:
            if step in fault and (longer := self._longer(fault, step)) > 0:
                if fault.kind == "slow_busy":
                    while time.process_time() < now + longer * usual:
                        pass
                else:
                    self._clock.sleep(longer * usual)

    def _longer(self, fault: Fault, step: int) -> float:
        """How many usual steps the wait takes."""
        if fault.kind == "slow_gradual":
            return (fault.size - 1) * (step - fault.first) / (self._steps - fault.first)
        if fault.kind == "slow_tenth":
            return fault.size - 1 if step % 10 == 0 else 0.0
        return fault.size - 1
