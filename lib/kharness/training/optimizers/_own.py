"""Optimizers that a training script brings, beside OPTIMIZER or apart from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from kharness.config.options import Options
from kharness.training.errors import TrainingError
from kharness.training.optimizers._averages import Averaging
from kharness.training.optimizers._together import Together


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
