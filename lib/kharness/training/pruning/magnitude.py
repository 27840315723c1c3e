"""Magnitude pruning: Han et al. 2015 (Learning both Weights and Connections for Efficient Networks)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from kharness.training.pruning._options import PruningOptions

CITED = ("han2015",)

Options = PruningOptions


def score(weight: Tensor, state: Mapping[str, Any]) -> Tensor:
    """Score a weight by its absolute value."""
    return weight.abs()
