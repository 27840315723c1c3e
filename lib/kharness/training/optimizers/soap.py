"""SOAP: Vyas et al. 2024 (Improving and Stabilizing Shampoo using Adam), algorithm 3.

Taken: SOAP of pytorch_optimizer, which is the authors' program with the same defaults. Its first step only
measures: it moves no weight. Vectors, and dimensions above 10,000, are not rotated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups

CITED = ("vyas2024",)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of SOAP."""

    learning_rate: float
    betas: tuple[float, float]
    """Decay of the first and of the second moment, and of Shampoo's statistics as of the second."""
    eps: float
    precondition_every: int
    """Steps between two of its eigenbases."""
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """pytorch_optimizer's SOAP."""
    from pytorch_optimizer import SOAP

    optimizer: torch.optim.Optimizer = SOAP(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        precondition_frequency=options.precondition_every,
    )
    return optimizer
