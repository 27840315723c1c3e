"""AdamWAdv: AdamW with AMSGrad (Reddi et al. 2018) and clipping of the total norm (Pascanu et al. 2013).

Taken: torch.optim.AdamW and torch.nn.utils.clip_grad_norm_. The cosine schedule that belongs to it is
SCHEDULE=cosine.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from kharness.training.optimizers import adamw

CITED = ("loshchilov2019", "reddi2018")


@dataclass(frozen=True)
class Options(adamw.Options):
    """Hyperparameters of AdamW, and those of AdamWAdv."""

    clip_norm: float
    """The total norm that gradients of a greater one are scaled to."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's AdamW, its fused kernel, which gets clipped gradients."""
    optimizer = adamw.build(model, options, amsgrad=True)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def clip(*_: object) -> None:
        clip_grad_norm_(parameters, options.clip_norm)

    optimizer.register_step_pre_hook(clip)
    return optimizer
