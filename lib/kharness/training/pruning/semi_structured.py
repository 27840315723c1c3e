"""2:4 structured pruning: Mishra et al. 2021 (Accelerating Sparse Deep Neural Networks).

Of every four weights that follow each other in a row of a layer's matrix two are zero in the end, the smaller
ones: the pattern that sparse tensor cores take. A convolution's matrix has a row for each output map.

Layers whose rows cannot be divided by four stay as they are and do not count in `sparsity`. It rises by
groups, from those whose two smaller weights are the smallest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kharness.training.pruning._options import PruningOptions


@dataclass(frozen=True, kw_only=True)
class Options(PruningOptions):
    """When; how much is given by the pattern."""

    sparsity: float = 0.5


def fits(weight: Tensor) -> bool:
    """Whether its rows can be divided by four."""
    return weight[0].numel() % 4 == 0


def score(weight: Tensor, state: Mapping[str, Any]) -> Tensor:
    """Infinite for the two larger of four, for the others their sum; what is pruned ranks below all zeros."""
    sizes = weight.abs().masked_fill(state["pruned"], -1).reshape(-1, 4)
    smaller = sizes.topk(2, dim=1, largest=False)
    scores = torch.full_like(sizes, torch.inf)
    scores.scatter_(1, smaller.indices, smaller.values.sum(1, keepdim=True).expand(-1, 2))
    return scores.view(weight.shape)
