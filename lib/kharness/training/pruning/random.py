"""Random pruning: the baseline that every other method has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kharness.training.pruning._options import PruningOptions

Options = PruningOptions


def score(weight: Tensor, state: Mapping[str, Any]) -> Tensor:
    """Every weight matters as much as any other.

    Drawn from torch's CPU generator, which SEED seeds and a checkpoint holds, so that a seed prunes the same
    weights on every device.
    """
    return torch.rand(weight.shape).to(weight.device)
