"""Movement pruning: Sanh et al. 2020 (Adaptive Sparsity by Fine-Tuning, arXiv 2005.07683), equation 4.

The score of a weight is the sum over all steps of -gradient * weight. Scores of pruned weights are updated
too, by the straight-through estimator: by the gradient at zero and the value that they were pruned at. So a
pruned weight may return, with that value.

The learning rate of the scores, a factor that all share, is left out; they take no part in the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kharness.training.pruning._options import PruningOptions

CITED = ("sanh2020",)

Options = PruningOptions


def remember(weight: Tensor) -> dict[str, Tensor]:
    """The score so far; and `held`, by which the pruner gives a pruned weight its value back."""
    return {"movement": torch.zeros_like(weight), "held": weight.detach().clone()}


def learn(weight: Tensor, gradient: Tensor, state: Mapping[str, Any]) -> None:
    """Count a step, before the optimizer takes it."""
    values = torch.where(state["pruned"], state["held"], weight)
    state["movement"].addcmul_(gradient, values, value=-1)


def score(weight: Tensor, state: Mapping[str, Any]) -> Tensor:
    """A weight matters as much as training moved it away from zero, step by step."""
    movement: Tensor = state["movement"]
    return movement
