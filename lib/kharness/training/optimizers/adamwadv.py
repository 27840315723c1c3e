"""AdamWAdv: AdamW with AMSGrad (Reddi et al. 2018) and clipping of the total norm (Pascanu et al. 2013).

Taken: torch.optim.AdamW and torch.nn.utils.clip_grad_norm_. The cosine schedule that belongs to it is
SCHEDULE=cosine.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from kharness.training.optimizers import parameter_groups

CITED = ("loshchilov2019", "reddi2018")


@dataclass(frozen=True)
class Options:
    """Hyperparameters of AdamWAdv."""

    learning_rate: float
    betas: tuple[float, float]
    """Decay of the first and of the second moment."""
    eps: float
    clip_norm: float
    """The total norm that gradients of a greater one are scaled to."""
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's AdamW, its fused kernel, which gets clipped gradients."""
    optimizer = torch.optim.AdamW(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        amsgrad=True,
        fused=True,
    )
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def clip(*_: object) -> None:
        clip_grad_norm_(parameters, options.clip_norm)

    optimizer.register_step_pre_hook(clip)
    return optimizer
