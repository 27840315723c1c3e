"""Adafactor: Shazeer and Stern 2018 (Adaptive Learning Rates with Sublinear Memory Cost), algorithms 4 and 5.

Taken: torch.optim.Adafactor. Of a matrix it keeps the second moments of rows and columns only, and no first
moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups


@dataclass(frozen=True)
class Options:
    """What Adafactor does with a gradient."""

    learning_rate: float
    """The highest relative step: this or 1 / sqrt(t), times the root mean square of the weights."""
    beta2_decay: float
    """Exponent of the second moment's decay: 1 - t^this."""
    scale: float
    """The least root mean square of weights, the paper's eps2."""
    clip: float
    """The highest root mean square of an update, the paper's d."""
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's Adafactor."""
    return torch.optim.Adafactor(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        beta2_decay=options.beta2_decay,
        eps=(None, options.scale),
        d=options.clip,
    )
