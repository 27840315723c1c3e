"""Adam: Kingma and Ba 2015 (Adam: A Method for Stochastic Optimization), algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups


@dataclass(frozen=True)
class Options:
    """What Adam does with a gradient."""

    learning_rate: float
    betas: tuple[float, float]
    """Decay of the first and of the second moment."""
    eps: float
    weight_decay: float
    """Times the weight, added to the gradient (L2), as it is usually done with Adam."""

    @classmethod
    def read(cls, symbols: Mapping[str, Any]) -> Self:
        """The options that the configuration holds."""
        first, second = symbols["OPTIMIZER_ADAM_BETAS"]
        return cls(
            learning_rate=symbols["LEARNING_RATE"],
            betas=(first, second),
            eps=symbols["OPTIMIZER_ADAM_EPS"],
            weight_decay=symbols["WEIGHT_DECAY"],
        )


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's Adam, its fused kernel."""
    return torch.optim.Adam(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        fused=True,
    )
