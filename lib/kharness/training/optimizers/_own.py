"""Optimizers that a training script brings, beside OPTIMIZER or apart from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from kharness.config.options import Options
from kharness.training.errors import TrainingError
from kharness.training.optimizers import described_groups
from kharness.training.optimizers._averages import Averaging
from kharness.training.optimizers._together import Together
from kharness.training.saving.sharded import is_sharded


@dataclass(frozen=True)
class OwnOptimizers:
    """Optimizers of a script's own; their parameters are no longer those of OPTIMIZER.

    Their learning rates are peaks: the schedule moves them as it moves LEARNING_RATE. Checkpoints hold them.
    """

    beside: Sequence[torch.optim.Optimizer] = ()
    """Step with OPTIMIZER, by the gradients of the same loss."""
    apart: Mapping[str, torch.optim.Optimizer] = field(default_factory=dict)
    """Step by `training.update_apart(name, loss)`: a discriminator's."""

    @contextmanager
    def parameters_taken(self, model: nn.Module) -> Iterator[None]:
        """Within it only OPTIMIZER's parameters require gradients; TrainingError if any is shared."""
        taken: list[nn.Parameter] = []
        for optimizer in (*self.beside, *self.apart.values()):
            taken += [weight for group in optimizer.param_groups for weight in group["params"]]
        trained = {weight for weight in model.parameters() if weight.requires_grad}
        if len(set(taken)) < len(taken) or not set(taken) <= trained:
            raise TrainingError(
                "each parameter of an optimizer of your own belongs to the model, and to no other of them",
                hint="build them of different parts: torch.optim.SGD(model.head.parameters(), lr=0.1)",
            )
        if not trained - set(taken):
            raise TrainingError(
                "optimizers of your own leave no parameter to OPTIMIZER, whose LEARNING_RATE schedules all",
                hint="leave one of them out; OPTIMIZER trains its part",
            )
        for weight in taken:
            weight.requires_grad_(False)
        try:
            yield
        finally:
            for weight in taken:
                weight.requires_grad_(True)

    def described(self, model: nn.Module) -> dict[str, Any]:
        """Each of them for the start record, by its class or its name: the peak rates, and the groups."""
        named = [*((type(own).__name__, own) for own in self.beside), *self.apart.items()]
        if not named:
            return {}
        words = [f"{name} {float(own.param_groups[0]['lr']):g}" for name, own in named]
        groups = [
            {"optimizer": name, **group} for name, own in named for group in described_groups(model, own)
        ]
        return {"own_optimizers": words, "own_groups": groups}

    def joined(self, optimizer: torch.optim.Optimizer, peak: float) -> torch.optim.Optimizer:
        """OPTIMIZER with what steps beside it; `peak` is LEARNING_RATE, to which all rates are relative."""
        for own in (*self.beside, *self.apart.values()):
            for group in own.param_groups:
                group["rate_scale"] = float(group["lr"]) / peak
        if not self.beside:
            return optimizer
        if isinstance(optimizer, Averaging):
            raise TrainingError(
                "OPTIMIZER=schedulefree averages all weights, so no other optimizer steps beside it",
                hint="choose another OPTIMIZER",
            )
        parts = optimizer.parts if isinstance(optimizer, Together) else [optimizer]
        return Together([*parts, *self.beside])


BuildOptimizers = Callable[[nn.Module, Options], OwnOptimizers]
"""Given the model and the options."""


def check_gradients_alone(weights: Sequence[Tensor], *, is_part: bool) -> None:
    """TrainingError where several processes cannot average the gradients of one loss alone."""
    if any(map(is_sharded, weights)):
        raise TrainingError(
            "with PARALLEL=fsdp there are no gradients of one loss alone: ranks share the weights",
            hint="train with PARALLEL=ddp",
        )
    if is_part:
        raise TrainingError(
            "gradients of one loss alone are of the whole batch: processes may differ in their micro-batches",
            hint="take it by training.batch(…, indices), outside of training.micro_batches",
        )


def laid_out(gradient: Tensor, weight: nn.Parameter) -> Tensor:
    """The gradient in its weight's order of memory, which backward gives and fused kernels do not check.

    torch.autograd.grad gives some of convolutions in another order; their updates would be of wrong weights.
    """
    return gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)
