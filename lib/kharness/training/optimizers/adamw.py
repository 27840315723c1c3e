"""AdamW: Loshchilov and Hutter 2019 (Decoupled Weight Decay Regularization), algorithm 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups


@dataclass(frozen=True)
class Options:
    """What AdamW does with a gradient."""

    learning_rate: float
    betas: tuple[float, float]
    """Decay of the first and of the second moment."""
    eps: float
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""

    @classmethod
    def read(cls, symbols: Mapping[str, Any]) -> Self:
        """The options that the configuration holds."""
        first, second = symbols["OPTIMIZER_ADAMW_BETAS"]
        return cls(
            learning_rate=symbols["LEARNING_RATE"],
            betas=(first, second),
            eps=symbols["OPTIMIZER_ADAMW_EPS"],
            weight_decay=symbols["WEIGHT_DECAY"],
        )


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's AdamW, its fused kernel."""
    return torch.optim.AdamW(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        fused=True,
    )
