"""Schedule-Free AdamW: Defazio et al. 2024 (The Road Less Scheduled), algorithm 1 with Adam's second moment.

Gradients are taken at y = (1 - beta1) z + beta1 x; z takes the steps; x, the average that is evaluated and
saved, takes the place of a schedule. Use SCHEDULE=constant, the default with it.

Taken: AdamWScheduleFree of schedulefree, the authors' package.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups

CITED = ("defazio2024",)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of Schedule-Free AdamW."""

    learning_rate: float
    betas: tuple[float, float]
    """Share of the average in where gradients are taken, and decay of the second moment."""
    eps: float
    warmup_steps: int
    """Steps over which the rate rises linearly; they weigh less in the average."""
    weight_decay: float
    """Times the learning rate and the weight at y, subtracted (decoupled)."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """The authors' AdamWScheduleFree."""
    from schedulefree import AdamWScheduleFree

    optimizer: torch.optim.Optimizer = AdamWScheduleFree(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        warmup_steps=options.warmup_steps,
    )
    return optimizer
