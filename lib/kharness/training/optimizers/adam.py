"""Adam: Kingma and Ba 2015 (Adam: A Method for Stochastic Optimization), algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups

CITED = ("kingma2015",)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of Adam."""

    learning_rate: float
    betas: tuple[float, float]
    """Decay of the first and of the second moment."""
    eps: float
    weight_decay: float
    """Times the weight, added to the gradient (L2), as it is usually done with Adam."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's Adam, its fused kernel."""
    return torch.optim.Adam(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        fused=True,
    )
