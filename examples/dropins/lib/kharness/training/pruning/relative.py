"""Weights compared with the spread of their layer."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from kharness.training.pruning._options import PruningOptions


class Options(PruningOptions):
    """Nothing beyond when and how much."""


def score(weight: Tensor, state: Mapping[str, Any]) -> Tensor:
    """A weight matters as much as it stands out of its layer."""
    return weight.abs() / weight.std()
