"""AdEMAMix: Pagliardini et al. 2024 (The AdEMAMix Optimizer: Better, Faster, Older), algorithm 1.

Taken: AdEMAMix of pytorch_optimizer, its decay decoupled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups

CITED = ("pagliardini2024",)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of AdEMAMix."""

    learning_rate: float
    betas: tuple[float, float, float]
    """Decay of the fast first moment, of the second moment, and of the slow first moment."""
    alpha: float
    """Weight of the slow first moment."""
    eps: float
    warmup_steps: int
    """Steps until alpha and the slow decay reach their values; 0 has them from the start."""
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """pytorch_optimizer's AdEMAMix."""
    from pytorch_optimizer import AdEMAMix

    optimizer: torch.optim.Optimizer = AdEMAMix(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        alpha=options.alpha,
        eps=options.eps,
        t_alpha_beta3=options.warmup_steps or None,
        weight_decouple=True,
    )
    return optimizer
