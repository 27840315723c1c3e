"""The update of a step: gradients are judged before they change a weight, alike on every rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from kharness.training.errors import TrainingError
from kharness.training.guard import Buffers, FiniteWatch, Scalar, StepSamples
from kharness.training.saving.sharded import full, is_sharded
from kharness.training.schedules import set_learning_rate
from kharness.training.setup import Setup
from kharness.training.steps.control import StepAgreement
from monitoring.telemetry.phases import Phases


@dataclass(frozen=True)
class Updated:
    """The result of an update."""

    loss: Tensor
    """Mean over the samples of all ranks."""
    train_loss: Scalar
    """The same for a record."""
    grad_norm: Scalar
    """Norm of the gradients before clipping."""
    is_skipped: bool
    """Whether the weights stayed as they were, because loss or gradients are not finite."""


class GuardedUpdate:
    """Adds up the gradients of a step and applies them, unless the loss or their norm is not finite.

    NonFiniteError then, on every rank in the same step, once GUARD_MAX_SKIPS steps in a row were skipped.
    """

    def __init__(
        self, setup: Setup[Any], agreement: StepAgreement, phases: Phases, record: Callable[..., object]
    ) -> None:
        """`record` takes the values of a step that is not finite."""
        max_skips = setup.options.GUARD_MAX_SKIPS
        self._setup, self._agreement, self._phases = setup, agreement, phases
        self._watch = FiniteWatch(record=record, max_skips=max_skips, skips=setup.progress.skips)
        self._watches = {
            name: FiniteWatch(record=_named(record, name), max_skips=max_skips) for name in setup.apart
        }
        apart = setup.trained_apart()
        self._weights = [w for w in setup.model.parameters() if w.requires_grad and w not in apart]
        self._before_step = Buffers(setup.model if max_skips else None)
        self._loss: Tensor | None = None
        self.factor = 1.0
        """Weight of this rank's mean loss in that of the step, times the number of ranks."""

        self.rate = 0.0
        """The step's learning rate."""
        self.moved: dict[str, float] = {}
        """Options of the optimizer that a schedule moves, as they are in this step."""

    def begin(self, step: int, *, lr_factor: float, factor: float) -> None:
        """A step (from 0) begins: what its learning rate is times that of the schedule, and `factor`."""
        self._setup.weights.to_train()
        self.rate = self._setup.schedule(step) * lr_factor
        for optimizer in (self._setup.optimizer, *self._setup.apart.values()):
            set_learning_rate(optimizer, self.rate)
            optimizer.zero_grad()
        self.moved = self._setup.option_schedules.set(step)
        self._before_step.keep()
        self.factor = factor

    def add(
        self,
        loss: Tensor,
        *,
        share: float,
        report: Tensor | None,
        gradients: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add the gradients of a part, by its mean loss and its share of this rank's samples.

        `report` is recorded in the loss's place, unless the loss is not finite. `gradients`, means over all
        ranks by the parameters' names, are taken in place of the loss's own.
        """
        share *= self.factor
        if report is not None:
            # The guard judges what is recorded: a finite report must not hide a loss that is not.
            report = torch.where(loss.detach().isfinite(), report.detach(), loss.detach())
        loss = loss if share == 1 else loss * share
        self._phases.end("forward_seconds")
        if gradients is None:
            loss.backward()
        else:
            # Averaged over ranks already: `factor`, which makes up for ranks of unequal parts, is taken out.
            self._add_gradients(gradients, share / self.factor if self.factor else 0.0)
        self._phases.end("backward_seconds")
        reported = loss.detach() if report is None else report * share
        self._loss = reported if self._loss is None else self._loss + reported

    def apply(self, step: int, batch: Tensor, *, clip_norm: float | None) -> Updated:
        """Update the weights by what was added up, as the `step`-th of all; `batch` is that of all ranks.

        Where the order of calls matters: the record has the gradients as they came, so clipping follows the
        verdict. Pruned weights and averages follow the update, which moves the former too (momentum, weight
        decay); both are part of its phase.
        """
        assert self._loss is not None, "update() needs a loss, or accumulate() before it"
        setup = self._setup
        loss, samples = self._agreed(self._loss, batch)
        self._loss = None
        # torch.nn.utils.clip_grad_norm_ in its two halves, so that the norm is judged between them.
        norm = full(get_total_norm([weight.grad for weight in self._weights if weight.grad is not None]))
        train_loss, grad_norm = self._watch.look(step, loss, norm, samples)
        setup.progress.skips = self._watch.skips
        if self._watch.skips:
            # The forward pass has changed them already: statistics of batch norm, which may be NaN now.
            self._before_step.put_back()
        else:
            if clip_norm is not None:
                clip_grads_with_norm_(self._weights, clip_norm, norm)
            setup.optimizer.step()
        setup.pruner.after_step(step)
        if setup.average is not None:
            setup.average.update()
            setup.pruner.after_average(setup.average.model)
        self._phases.end("optimizer_seconds")
        return Updated(loss, train_loss, grad_norm, bool(self._watch.skips))

    def apply_apart(self, step: int, name: str, loss: Tensor, *, clip_norm: float | None) -> None:
        """Update what the optimizer `name` has by a loss of its own, within the `step`-th step of all."""
        optimizer = self._setup.apart[name]
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        [gradients] = self.gradients_of([loss], weights)
        norm = get_total_norm(gradients)
        watch = self._watches[name]
        watch.look(step, loss.detach() + 0 * norm, norm)
        if not watch.skips:
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            if clip_norm is not None:
                clip_grads_with_norm_(weights, clip_norm, norm)
            optimizer.step()
            optimizer.zero_grad()

    def gradients_of(self, losses: Sequence[Tensor], weights: Sequence[Tensor]) -> list[list[Tensor]]:
        """The gradients of each of the losses, means over this rank's samples, averaged over all ranks.

        TrainingError where ranks share the weights.
        """
        if any(map(is_sharded, weights)):
            raise TrainingError(
                "with PARALLEL=fsdp there are no gradients of one loss alone: ranks share the weights",
                hint="train with PARALLEL=ddp",
            )
        found = []
        for loss in losses:
            scaled = loss if self.factor == 1 else loss * self.factor
            own = torch.autograd.grad(
                scaled, weights, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            found.append(self._setup.world.averaged(list(own)))
        return found

    def wait(self) -> None:
        """Until every step so far is judged: for what must not be made of spoiled weights."""
        for watch in (self._watch, *self._watches.values()):
            watch.wait()

    def _add_gradients(self, gradients: Mapping[str, Tensor], share: float) -> None:
        for name, weight in self._setup.model.named_parameters():
            if (gradient := gradients.get(name)) is not None:
                gradient = gradient * share
                weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)

    def _agreed(self, loss: Tensor, batch: Tensor) -> tuple[Tensor, StepSamples]:
        """The loss of the batch, by each rank's own part of it, and which samples these are."""
        world = self._setup.world
        if world.size == 1:
            self._agreement.exchange(loss)
            return loss, StepSamples([batch])
        self._phases.own_work_done()
        losses = self._agreement.exchange(loss)
        self._phases.leave_out()
        return losses.mean(), StepSamples(world.parts(batch), losses)


class SampleLosses(GuardedUpdate):
    """Notes the loss of each step, here of a single sample (`make inspect-batch`); no weight changes."""

    loss = 0.0

    def begin(self, step: int, *, lr_factor: float, factor: float) -> None:
        """A sample begins."""
        self.loss = 0.0

    def add(
        self,
        loss: Tensor,
        *,
        share: float,
        report: Tensor | None,
        gradients: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.loss += share * (loss if report is None else report).item()

    def apply(self, step: int, batch: Tensor, *, clip_norm: float | None) -> Updated:
        return Updated(torch.tensor(self.loss), self.loss, 0.0, is_skipped=True)

    def apply_apart(self, step: int, name: str, loss: Tensor, *, clip_norm: float | None) -> None: ...


def _named(record: Callable[..., object], name: str) -> Callable[..., object]:
    """Records the values of an optimizer apart from OPTIMIZER under its name."""

    def named(step: int, *, train_loss: float, grad_norm: float, **about: object) -> object:
        return record(step, **{f"{name}_loss": train_loss, f"{name}_grad_norm": grad_norm}, **about)

    return named
