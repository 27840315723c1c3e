"""One training step with its real shapes is measured: memory by purpose, and time, where phases are marked.

Memory is estimated before the step, by parts (weights, gradients, …), and measured after it.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kharness.training.due import Every
from kharness.training.errors import OutOfMemoryError
from kharness.training.fake_tensors import (
    ModelWithoutValues,
    SavedTensors,
    copy_without_values,
    num_samples,
    tensors_of,
)
from kharness.training.optimizers import build_optimizer
from kharness.training.optimizers._averages import weights_of
from kharness.training.setup import Setup
from monitoring.counts import counted
from monitoring.host.cgroup import CgroupLimits
from monitoring.telemetry.phases import PARTS, PHASES

# The first step of a process is slower than any other: short ones are repeated for the time.
MOST_STEPS = 5
SECONDS = 1.0


@dataclass(frozen=True)
class StepMemory:
    """Bytes by part; None where it is not known."""

    weights: int
    """Parameters and buffers."""
    gradients: int
    optimizer_state: int | None
    activations: int | None = None
    """Bytes that the forward pass of one micro-batch keeps for its backward pass."""

    @property
    def total(self) -> int | None:
        """None where a part is not known."""
        parts = astuple(self)
        return None if None in parts else sum(parts)


def estimated_memory(model: nn.Module, optimizer: str, symbols: Mapping[str, Any]) -> StepMemory:
    """Estimate from the shapes of the weights; the optimizer's state from a step of it on the meta device.

    An optimizer that looks at values cannot step there, so its state is not known before.
    """
    state: int | None = None
    meta = copy_without_values(model, lambda tensor: torch.empty_like(tensor, device="meta"))
    with suppress(RuntimeError, NotImplementedError):
        stepping, _ = build_optimizer(optimizer, meta, symbols)
        for group in stepping.param_groups:
            group["fused"] = False  # such steps are not on the meta device; their state is the same
        for weight in _trained(meta):
            weight.grad = torch.empty_like(weight)
        # A schedule-free optimizer refuses to step while its average is in the model.
        weights_of(meta, stepping).to_train()
        stepping.step()
        state = state_bytes(stepping)
    return StepMemory(
        weights=num_bytes(tensors_of(model)), gradients=num_bytes(_trained(model)), optimizer_state=state
    )


def measured_memory(model: nn.Module, optimizer: torch.optim.Optimizer, activations: int) -> StepMemory:
    """Measure the memory after a step."""
    return StepMemory(
        weights=num_bytes(tensors_of(model)),
        gradients=num_bytes(weight.grad for weight in model.parameters() if weight.grad is not None),
        optimizer_state=state_bytes(optimizer),
        activations=activations,
    )


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total size of the tensors in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the size of the tensors in the optimizer's state in bytes."""
    return num_bytes(_tensors_in(list(optimizer.state.values())))


def free_memory(device: torch.device, root: Path = Path("/")) -> int | None:
    """Bytes that a training can still get on the device; None where the system does not say.

    On a CPU what is available, a limit of our cgroup and those of this process (`ulimit -v`, `ulimit -d`)
    count; `root` has `proc` and what is mounted.
    """
    if device.type == "cuda":
        # What torch keeps for later tensors is taken to the driver, and free to this training.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    free = [bytes_in(root / "proc/meminfo", "MemAvailable")]
    total = bytes_in(root / "proc/meminfo", "MemTotal")
    if total is not None and (limit := CgroupLimits(root).memory(total)) is not None:
        free.append(max(0, limit.total - limit.used))
    # What each limit counts has its line in /proc/self/status: all mappings, or (since Linux 4.7) those that
    # are private and can be written.
    for number, taken in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, used = resource.getrlimit(number)[0], bytes_in(root / "proc/self/status", taken)
        if most != resource.RLIM_INFINITY and used is not None:
            free.append(max(0, most - used))
    return min((found for found in free if found is not None), default=None)


def bytes_in(file: Path, name: str) -> int | None:
    """A value of a file of /proc, which writes them as `Name:   12 kB`."""
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def _tensors_in(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors_in(one)


class EnoughMeasured(BaseException):
    """Ends a check from inside an evaluation; no Exception, so that no model takes it for a failure."""


class MeasuredPhases:
    """The phases (monitoring.telemetry.phases) of a step, in seconds of its own; waiting is part of them."""

    def __init__(self, setup: Setup[Any]) -> None:
        self.setup = setup
        self.is_enough = False
        """Whether no further step is needed."""
        self.part_size: int | None = None
        """Samples of a step that are computed; None for all."""
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
        if _has_parts(setup):
            self.part_size = options.MICRO_BATCH_SIZE
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
        # After the first micro-batch: the next ones keep the same bytes again, once these are free.
        if phase in (PHASES[1], PARTS[1]):
            self._counting.close()
        if phase == PHASES[-1]:
            self._end_step()

    def saved(self, seconds: float) -> None:
        """A checkpoint was written."""
        self._saved_seconds = seconds

    def __str__(self) -> str:
        """All that the step has shown, of one micro-batch; what was not measured has no line."""
        setup, options, batches = self.setup, self.setup.options, self.setup.batches
        parameters = list(setup.model.parameters())
        total = sum(parameter.numel() for parameter in parameters)
        frozen = total - sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
        of_rank = math.ceil(batches.batch_size / setup.world.size)
        flops = None if self._flops is None else round(self._flops * batches.batch_size / self._samples)
        lines = [
            f"parameters: {total:,}" + (f", {frozen:,} of them not trained" if frozen else ""),
            *self._memory_lines(),
            f"FLOPs per step: {_metric(flops)}, forward and backward",
        ]
        step_seconds = None
        if phases := min(self._steps, key=lambda step: sum(step.values()), default=None):  # the quickest
            # The optimizer steps once per batch; every other phase grows with the samples.
            once = phases.get(PHASES[-1], 0.0)
            step_seconds = (sum(phases.values()) - once) * of_rank / self._samples + once
            num_parts = math.ceil(of_rank / self._samples)
            parts = f", {num_parts} micro-batches" if num_parts > 1 else ""
            rate = f", {_metric(flops / step_seconds)} FLOP/s" if flops else ""
            lines.append(f"step: {_shown_seconds(step_seconds)}{parts}{rate}")
        evaluation = self._evaluated and self._evaluated[0] * _validated(setup) / self._evaluated[1]
        if evaluation is not None:
            lines.append(f"evaluation: {_shown_seconds(evaluation)}, by its first batch")
        if self._saved_seconds is not None:
            lines.append(f"checkpoint: {_shown_seconds(self._saved_seconds)}")
        if step_seconds is not None:
            num_steps = setup.schedule.num_steps
            evaluations = math.ceil(num_steps / (options.EVAL_INTERVAL or batches.steps_per_epoch))
            evaluations += bool(options.EVAL_FIRST)
            every = Every.checkpoints(options.CHECKPOINT_EVERY, options.CHECKPOINT_UNIT)
            between = every.steps or every.epochs * batches.steps_per_epoch
            saves = math.ceil(num_steps / between) if between else 1
            # Without tests, samples and start-up.
            seconds = num_steps * step_seconds
            seconds += evaluations * (evaluation or 0) + saves * (self._saved_seconds or 0)
            lines.append(
                f"expected: {_shown_seconds(min(seconds, 60 * options.MAX_TIME or math.inf))} for "
                f"{counted(num_steps, 'step')}, {counted(evaluations, 'evaluation')} and "
                f"{counted(saves, 'checkpoint')}"
            )
        return "\n".join(lines)

    def _memory_lines(self) -> list[str]:
        lines = [f"{'memory of a step':<18}{'estimated':>12}{'measured':>12}"]
        for name in (*(field.name for field in fields(StepMemory)), "total"):
            known = [getattr(memory, name, None) for memory in (self._estimated, self._measured)]
            title = name.replace("_", " ")
            lines.append(f"  {title:<16}" + "".join(f"{in_units(value):>12}" for value in known))
        if self._measured is not None:
            if self.setup.device.is_gpu:
                of, peak = "torch on the GPU", torch.cuda.max_memory_allocated(self.setup.device.torch)
            else:
                of = "this process, with Python, torch and the data"
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            lines.append(f"  peak of {of}: {in_units(peak)}")
        return lines

    def _end_step(self) -> None:
        setup = self.setup
        if not self._steps:
            self._measured = measured_memory(setup.model, setup.optimizer, self._saved.num_bytes)
        self._steps.append(self._seconds)
        seconds = sum(sum(step.values()) for step in self._steps)
        is_enough = seconds >= SECONDS or len(self._steps) == MOST_STEPS
        # Each rank has seconds of its own, and all take equally many steps.
        self.is_enough = bool(max(setup.world.highest(int(is_enough))))

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
            print(self)
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


def _has_parts(setup: Setup[Any]) -> bool:
    """Whether a step goes through the model in micro-batches."""
    return bool(setup.options.MICRO_BATCH_SIZE)


def in_units(num_bytes: int | None) -> str:
    """A size in kB, MB or GB, of a thousand each; `-` where it is not known."""
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
