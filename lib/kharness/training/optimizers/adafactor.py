"""Adafactor: Shazeer and Stern 2018 (Adaptive Learning Rates with Sublinear Memory Cost), algorithms 4 and 5.

Taken: torch.optim.Adafactor. Of a matrix it keeps the second moments of rows and columns only, and no first
moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kharness.training.optimizers import parameter_groups
from kharness.training.saving.sharded import full, is_sharded, part

CITED = ("shazeer2018",)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of Adafactor."""

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
    is_shared = any(map(is_sharded, model.parameters()))
    return (SharedAdafactor if is_shared else torch.optim.Adafactor)(
        parameter_groups(model, options.weight_decay),
        lr=options.learning_rate,
        beta2_decay=options.beta2_decay,
        eps=(None, options.scale),
        d=options.clip,
    )


class SharedAdafactor(torch.optim.Adafactor):
    """torch's, whose groups and state it has, for a model that ranks share.

    Means over rows, columns and all elements need complete tensors, so each rank takes torch's step of one
    complete weight after the other and keeps its part. Of the moments of rows and columns, which are few, it
    keeps all.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # a training has none
        """One step; all ranks have to call this."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(group, weight)

    def _step(self, group: dict[str, Any], weight: nn.Parameter) -> None:
        assert weight.grad is not None
        complete = nn.Parameter(full(weight.detach()))
        complete.grad = full(weight.grad)
        one = torch.optim.Adafactor([{**group, "params": [complete]}])
        if weight in self.state:
            one.state[complete] = {name: full(value) for name, value in self.state[weight].items()}
        one.step()
        weight.copy_(part(complete.detach(), weight))
        self.state[weight] = {
            name: part(value, weight) if value.shape == weight.shape else value
            for name, value in one.state[complete].items()
        }
