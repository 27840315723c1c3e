"""A weight that gets gradients one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kharness.training.optimizers import OPTIMIZERS


class Weight(nn.Module):
    """Two rows, so that they decay, in double precision."""

    def __init__(self, values: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(values, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


Descend = Callable[..., Tensor]


@pytest.fixture
def descend() -> Descend:
    """The weight after each step, (steps, rows, columns), of an optimizer built with these options."""

    def path(module: ModuleType, start: Tensor, gradients: Tensor, **options: Any) -> Tensor:
        model = Weight(start.tolist())
        optimizer = module.build(model, OPTIMIZERS.made(module.__name__.rpartition(".")[2], options))
        found = []
        for gradient in gradients:
            model.weight.grad = gradient.clone()
            optimizer.step()
            found.append(model.weight.detach().clone())
        return torch.stack(found)

    return path
