"""Lion: Chen et al. 2023 (Symbolic Discovery of Optimization Algorithms), algorithm 2.

Taken: Lion of pytorch_optimizer, its decay decoupled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups

CITED = ("chen2023",)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of Lion."""

    learning_rate: float
    """Every weight moves by this in every step: a third to a tenth of AdamW's."""
    betas: tuple[float, float]
    """Share of the momentum in the update, and decay of the momentum."""
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """pytorch_optimizer's Lion."""
    from pytorch_optimizer import Lion

    groups = parameter_groups(model, options.weight_decay)
    optimizer: torch.optim.Optimizer = Lion(groups, lr=options.learning_rate, betas=options.betas)
    return optimizer
