"""AdamW: Loshchilov and Hutter 2019 (Decoupled Weight Decay Regularization), algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups

CITED = ("loshchilov2019",)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of AdamW."""

    learning_rate: float
    betas: tuple[float, float]
    """Decay of the first and of the second moment."""
    eps: float
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""


def build(model: nn.Module, options: Options, *, amsgrad: bool = False) -> torch.optim.AdamW:
    """torch's AdamW, its fused kernel; `amsgrad` divides by the largest second moment so far."""
    return torch.optim.AdamW(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        amsgrad=amsgrad,
        fused=True,
    )
