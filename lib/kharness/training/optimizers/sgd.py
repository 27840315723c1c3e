"""SGD with momentum, Nesterov's as in Sutskever et al. 2013.

On the importance of initialization and momentum in deep learning, equations 3 and 4, in torch's form.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.needs import check_nesterov
from kharness.training.optimizers import parameter_groups
from kharness.training.saving.sharded import is_sharded

CITED = ("sutskever2013",)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of SGD."""

    learning_rate: float
    momentum: float
    nesterov: bool
    weight_decay: float
    """Times the weight, added to the gradient (L2)."""

    def __post_init__(self) -> None:
        check_nesterov(nesterov=self.nesterov and self.momentum == 0)


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's SGD, its fused kernel where there is one."""
    return torch.optim.SGD(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        momentum=options.momentum,
        nesterov=options.nesterov,
        fused=not any(map(is_sharded, model.parameters())),  # that kernel takes no parts of weights
    )
