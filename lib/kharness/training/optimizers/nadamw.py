"""NAdamW: Adam with Nesterov momentum and decoupled weight decay.

Dozat 2016 (Incorporating Nesterov Momentum into Adam), algorithm 2; the decay of Loshchilov and Hutter 2019.

Taken: torch.optim.NAdam.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import adamw, parameter_groups

CITED = ("dozat2016", "loshchilov2019")


@dataclass(frozen=True)
class Options(adamw.Options):
    """Hyperparameters of AdamW, and those of NAdamW."""

    momentum_decay: float
    """How slowly the momentum rises to its decay: beta1 (1 - 0.96^(t * this) / 2) at step t."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's NAdam, its decay decoupled."""
    return torch.optim.NAdam(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        momentum_decay=options.momentum_decay,
        decoupled_weight_decay=True,
    )
