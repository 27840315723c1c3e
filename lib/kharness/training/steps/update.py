"""The update of a step: gradients are judged before they change a weight, alike on every rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from kharness.training.guard import Buffers, FiniteWatch, Scalar, StepSamples
from kharness.training.saving.sharded import full
from kharness.training.schedules import set_learning_rate
from kharness.training.setup import Setup
from kharness.training.steps.agreement import StepAgreement
from monitoring.telemetry.phases import Phases


@dataclass(frozen=True)
class Updated:
    """What a step has come to."""

    loss: Tensor
    """Mean over the samples of all ranks."""
    train_loss: Scalar
    """The same for a record."""
    grad_norm: Scalar
    """Of the gradients as they came, before clipping."""
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
        self._weights = [weight for weight in setup.model.parameters() if weight.requires_grad]
        self._before_step = Buffers(setup.model if max_skips else None)
        self._loss: Tensor | None = None
        self._factor = 1.0

    def begin(self, *, rate: float, factor: float) -> None:
        """A step begins: its learning rate, and what the loss of this rank's part counts in its mean."""
        self._setup.weights.to_train()
        set_learning_rate(self._setup.optimizer, rate)
        self._setup.optimizer.zero_grad()
        self._before_step.keep()
        self._factor = factor

    def add(self, loss: Tensor, *, share: float) -> None:
        """Add the gradients of a part, by its mean loss and its share of this rank's samples."""
        share *= self._factor
        loss = loss if share == 1 else loss * share
        self._phases.end("forward_seconds")
        loss.backward()
        self._phases.end("backward_seconds")
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()

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
        norm = full(get_total_norm([weight.grad for weight in self._weights if weight.grad is not None]))
        train_loss, grad_norm = self._watch.look(step, loss, norm, samples)
        setup.progress.skips = self._watch.skips
        if self._watch.skips:
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

    def wait(self) -> None:
        """Until every step so far is judged: for what must not be made of spoiled weights."""
        self._watch.wait()

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
