"""The steps of a training, as a train.py calls them.

In each step, in this order (docs/training.md says why, change-the-training.md what can be changed):

    steps()       the schedule's learning rate, requests of `make control`; gives the indices
    batch()       reads the samples
    accumulate()  backward; update(loss) does it for a step of one part
    gradients()   the place between backward and update: averaged over processes, not yet clipped
    update()      norm, check that loss and norm are finite, clipping, the optimizer's step, pruning, averages
                  (all in GuardedUpdate), then the step's record
    evaluated()   where `evaluation_is_due`
    steps()       the end of an epoch, a checkpoint, a request to stop (KeptSteps)

What the steps are for is the `Purpose` of a Training: KeptSteps of a training, CheckedSteps of `--dry-run`
and of a trial of automatic settings, InspectedSteps of `make inspect-batch`. A train.py need not know which.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from kharness.runs.files import PREDICTIONS
from kharness.training.distributed.model import unsynchronized
from kharness.training.distributed.world import World
from kharness.training.errors import TrainingError
from kharness.training.setup import DataT, Setup
from kharness.training.steps.kept import Purpose, shown
from kharness.training.steps.parts import StepParts
from kharness.training.steps.update import Updated
from monitoring.journal.atomic_file import write_atomically

BatchT = TypeVar("BatchT", covariant=True)


class Split(Protocol[BatchT]):
    """A part of the data."""

    def batch(self, indices: Tensor, /) -> BatchT:
        """Return the model's inputs and targets for the given indices."""


Value = float | Tensor
"""A number, or a tensor of one element, which stays on its device."""


class OwnMetrics:
    """Means of what was recorded in the current step: over its micro-batches by their share, and over ranks.

    Nothing waits for a device: the sums of tensors are tensors, which the run's journal takes as they are.
    """

    def __init__(self, world: World, device: torch.device) -> None:
        self._world, self._device = world, device
        self._sums: dict[str, Value] = {}

    def begin(self) -> None:
        """A step begins."""
        if self._sums:
            self._sums = {}

    def add(self, metrics: dict[str, Value], *, weight: float) -> None:
        """Add values that count `weight` in the mean; TrainingError for one that is no single number."""
        for name, value in metrics.items():
            if isinstance(value, Tensor):
                if value.numel() != 1:
                    raise TrainingError(
                        f"record({name}=…): a tensor of shape {tuple(value.shape)} is no single number",
                        hint=f"record its mean: training.record({name}=value.mean())",
                    )
                value = value.detach().reshape(())
            elif not isinstance(value, (int, float)):
                raise TrainingError(
                    f"record({name}=…): {type(value).__name__} is no number",
                    hint="record numbers, or tensors of one element",
                )
            weighted = value * weight if weight != 1 else value
            self._sums[name] = self._sums[name] + weighted if name in self._sums else weighted

    def read(self, record: dict[str, Any]) -> dict[str, Value]:
        """The step's means, for a record that has the fields of `record`; waits for the other ranks.

        TrainingError where a field has the name of one of them, or a rank recorded others than this one.
        """
        if taken := sorted(self._sums.keys() & record.keys()):
            raise TrainingError(
                f"record({taken[0]}=…): each step record has a {taken[0]} already",
                hint=f"choose another name, such as own_{taken[0]}",
            )
        if self._world.size == 1 or not (names := self._agreed_names()):
            return self._sums
        on_device = any(isinstance(value, Tensor) and value.is_cuda for value in self._sums.values())
        device = self._device if on_device else torch.device("cpu")
        own = torch.stack(
            [torch.as_tensor(self._sums[name], dtype=torch.float64, device=device) for name in names]
        )
        return dict(zip(names, self._world.gathered(own).mean(0), strict=True))

    def _agreed_names(self) -> list[str]:
        """The names in one order; two numbers of each rank, which no device has to deliver, go around."""
        names = sorted(self._sums)
        own = torch.tensor([len(names), zlib.crc32("\n".join(names).encode())])
        if (self._world.gathered(own) != own).any():
            raise TrainingError(
                f"rank {self._world.rank} recorded {', '.join(names) or 'nothing'}, another something else",
                hint="have every process record the same names in the same steps",
            )
        return names


class WaitCheck:
    """With CUDA_SYNC_CHECK: between `begin` and `end` whatever waits for a CUDA GPU raises RuntimeError.

    By torch.cuda.set_sync_debug_mode, which knows the operations of torch that wait. A step is checked up to
    its record; evaluations and checkpoints, which follow it, wait and may.
    """

    def __init__(self, device: torch.device, *, is_on: bool) -> None:
        self._is_on = is_on and device.type == "cuda"

    def begin(self) -> None:
        if self._is_on:
            torch.cuda.set_sync_debug_mode("error")

    def end(self) -> None:
        if self._is_on:
            torch.cuda.set_sync_debug_mode("default")


class Training(Generic[DataT]):
    """A training under way. Each step of `steps` calls `update` once, and `evaluated` where that is due."""

    def __init__(self, setup: Setup[DataT], parts: StepParts, purpose: Purpose) -> None:
        self.options, self.data = setup.options, setup.data
        self.num_steps = setup.schedule.num_steps
        self.model = parts.model
        """The model that steps and evaluations call; in several processes it averages gradients."""
        self.optimizer = setup.optimizer
        """The one of OPTIMIZER; what you set in its `param_groups` in a step holds from its update on."""
        self.module = setup.model
        """The model itself, for forward passes whose gradients `gradients_of` or `update_apart` takes."""
        self.models = {"": self.model if parts.is_shared else setup.model}
        """Models to evaluate, by the prefix of their metrics: the model, and as `ema_` its moving average."""
        if setup.average is not None:
            self.models["ema_"] = setup.average.model
        self._setup, self._parts, self._purpose = setup, parts, purpose
        self._update, self._phases, self._telemetry = parts.update, parts.phases, parts.telemetry
        self._own, self._share = OwnMetrics(setup.world, setup.device.torch), 1.0
        self._waits = WaitCheck(setup.device.torch, is_on=bool(self.options.CUDA_SYNC_CHECK))
        self._batch = torch.empty(0, dtype=torch.int64)
        self._samples: dict[str, Any] = {}
        setup.progress.start_clocks()

    @property
    def step(self) -> int:
        """Updates done, over all attempts."""
        return self._purpose.step

    @property
    def world(self) -> World:
        """The processes of the training."""
        return self._purpose.world

    @contextmanager
    def profiled(self) -> Iterator[None]:
        """Within it the profiler keeps what it has, however the training ends."""
        try:
            yield
        except torch.OutOfMemoryError:
            self._parts.profiler.out_of_memory()
            raise
        finally:
            self._waits.end()
            self._parts.profiler.close()

    def steps(self) -> Iterator[Tensor]:
        """The indices of each step that is left, epoch after epoch; exits with 75 when a stop was requested.

        Of several ranks each gets its part of the batch.
        """
        parts, world = self._parts, self._setup.world
        parts.pace.restart()
        for batch in self._purpose.batches():
            self._batch, before = batch, self.step
            parts.profiler.begin_step(before + 1)
            indices, factor = world.part(batch)
            parts.control.look(before + 1)
            parts.alerted.look(before)
            self._waits.begin()
            # an average that an optimizer keeps of the weights leaves the model: it is trained again
            self._update.begin(before, lr_factor=parts.control.lr_factor, factor=factor)
            self._own.begin()
            self._phases.begin()
            self._telemetry.begin_step(before + 1)
            yield indices
            if self.step != before + 1:
                raise RuntimeError("each step of a training calls update() once")
            if not self._purpose.end_step():
                break
        self._purpose.end_steps()

    def batch(self, split: Split[BatchT], indices: Tensor) -> BatchT:
        """The samples of a step, or of a part of it; the time that it takes is the step's `data_seconds`."""
        found = split.batch(indices)
        self._purpose.took(found)
        self._phases.end("data_seconds")
        return found

    def micro_batches(self, indices: Tensor) -> Iterator[tuple[Tensor, float]]:
        """The parts of a step by MICRO_BATCH_SIZE, each with its share of the step's samples.

        Processes that share the model take equally many: one of fewer samples repeats one, with a share of 0.
        """
        size = self.options.MICRO_BATCH_SIZE or len(self._batch)
        parts = [(part, len(part) / len(indices)) for part in indices.split(size)]
        if self._parts.is_shared:
            most = math.ceil(math.ceil(len(self._batch) / self.world.size) / size)
            parts += [(indices[:1], 0.0)] * (most - len(parts))
        *others, last = parts
        with unsynchronized(self.model) if others else nullcontext():
            for part, self._share in others:
                yield part, self._share
                self._telemetry.end_part()
        self._share = last[1]
        yield last
        self._share = 1.0

    def record(self, **metrics: Value) -> None:
        """Add metrics of your own to the record of this step: numbers, or tensors of one element.

        They are means: over micro-batches by their share (within `micro_batches`), and over all processes,
        which record the same names. TrainingError for a name that each step record has.
        """
        self._own.add(metrics, weight=self._share * self._update.factor)

    def accumulate(
        self,
        loss: Tensor,
        *,
        share: float = 1.0,
        report: Tensor | None = None,
        gradients: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add the gradients of a micro-batch, by its mean loss and its share of the step's samples.

        for part, share in training.micro_batches(indices):
            loss = …
            training.accumulate(loss, share=share)
        training.update()

        `report` is the part of the loss that validation measures too, such as the cross-entropy without an
        auxiliary loss: it becomes `train_loss`, while the gradients are those of `loss`. `gradients` take
        the place of the loss's own: what you made of those that `gradients_of` gave.
        """
        self._update.add(loss, share=share, report=report, gradients=gradients)

    def gradients_of(self, *losses: Tensor) -> list[dict[str, Tensor]]:
        """The gradients of each loss alone, by the parameters' names, averaged over all processes.

        The losses are those of `training.module`: in several processes `training.model` would wait for the
        one backward pass that it averages. TrainingError with PARALLEL=fsdp.
        """
        named = {name: weight for name, weight in self.module.named_parameters() if weight.requires_grad}
        found = self._update.gradients_of(losses, list(named.values()))
        return [dict(zip(named, gradients, strict=True)) for gradients in found]

    def update_apart(self, name: str, loss: Tensor, *, clip_norm: float | None = None) -> None:
        """Update what an optimizer apart (OwnOptimizers) trains, by a loss of its own; as often as you like.

        The loss is of `training.module`. Its gradients are averaged over all processes; NonFiniteError as
        `update` has it.
        """
        self._update.apply_apart(self.step + 1, name, loss, clip_norm=clip_norm)

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of the step's mean loss by name, between the last `accumulate` and `update`.

        Of several processes they are the mean already; with PARALLEL=fsdp each has its part (DTensor). Change
        them in place: the check that they are finite, their recorded norm, `clip_norm` and the optimizer come
        after that. A parameter that the loss does not depend on has none.
        """
        named = self._setup.model.named_parameters()
        return {name: weight.grad for name, weight in named if weight.grad is not None}

    def update(
        self, loss: Tensor | None = None, *, clip_norm: float | None = None, report: Tensor | None = None
    ) -> None:
        """Update the weights by the gradients of the step's mean loss, or of what was accumulated.

        `clip_norm` scales gradients of a greater total norm down to it; the record has the norm before.
        `report` is what `accumulate` has it for. NonFiniteError before the update where the loss or the norm
        is not finite, on a GPU a few steps later.
        """
        if loss is not None:
            self.accumulate(loss, report=report)
        parts = self._parts
        updated = self._update.apply(self.step + 1, self._batch, clip_norm=clip_norm)
        self._purpose.step += 1
        self._telemetry.end_step()
        parts.control.apply(self.step)
        parts.pace.step(len(self._batch))
        if not updated.is_skipped:
            self._setup.progress.add(updated.loss, len(self._batch))
            if self._purpose.has_record:
                self._log_step(updated)
        parts.bar.step(self.step)
        self._waits.end()
        if self.evaluation_is_due:
            self._update.wait()  # its metrics would be those of weights that are NaN already
            self._setup.weights.to_evaluate()
            # Each rank has its own statistics of batch norm until a step begins; rank 0's are evaluated.
            self._setup.world.overwrite([b for model in self.models.values() for b in model.buffers()])

    def turns(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, int]]:
        """This process's chunks of an evaluation, each with how many of its samples count.

        Processes that share the model (PARALLEL=fsdp) call it equally often: one for which no chunk is left
        repeats another's, of which none counts.
        """
        if self._parts.is_shared:
            return self.world.rounds(chunks)
        return ((chunk, len(chunk)) for chunk in self.world.turns(chunks))

    @property
    def evaluation_is_due(self) -> bool:
        """Whether an evaluation follows this step: by EVAL_INTERVAL, and after the last step.

        Before the first step, in a run that does not resume: whether EVAL_FIRST wants the first weights
        evaluated. A checkpoint is written after the evaluation of its step: who resumes from it has that.
        """
        return self._purpose.evaluation_is_due

    def evaluated(self, split: str, **metrics: float) -> None:
        """Record an evaluation; the `loss` on the split `val` decides which checkpoint is the best.

        That of the first weights, which nobody has trained, decides nothing.
        """
        self._purpose.evaluated(split, metrics)

    def note_samples(self, texts: Sequence[str]) -> None:
        """Have the end record hold what the trained model wrote, and print it."""
        if texts:
            self._samples = {"samples": list(texts)}
            print("\n".join(["the trained model writes:", *texts]))

    def inferred(
        self,
        measured: Mapping[str, float],
        predictions: Sequence[Mapping[str, object]],
        picture: bytes | None = None,
    ) -> None:
        """Record what the trained model does, if it was requested; `picture` is a PNG of predictions."""
        if not self.world.is_main:
            return
        found: dict[str, object] = {"predictions": predictions} if predictions else {}
        if picture is not None:
            write_atomically(self._parts.run.directory / PREDICTIONS, picture)
            found["pictures"] = {"predictions": PREDICTIONS}
        if measured or found:
            self._parts.run.log_eval(self.step, split="inference", **measured, **found)
            print(shown(measured))

    def finish(self, **metrics: float) -> int:
        """Record the end, with the metrics on the test set, at which nothing has looked before; returns 0."""
        return self._purpose.finish(metrics, self._samples)

    def _log_step(self, updated: Updated) -> None:
        measured: dict[str, Any] = {"train_loss": updated.train_loss, "lr": self._update.rate}
        measured |= {"grad_norm": updated.grad_norm, **self._parts.pace.read(), **self._phases.read()}
        measured |= self._update.moved
        measured |= {**self._setup.device.memory(), **self._setup.pruner.measured()}
        measured |= self._telemetry.measured(self.step, measured)
        measured |= self._own.read(measured)
        self._parts.run.log_step(self.step, measured)
