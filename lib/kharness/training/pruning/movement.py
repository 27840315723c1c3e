"""Movement pruning by distance: how far a weight has moved from where it began, and in which direction.

The score of a weight w that began at w0 is w (w - w0): high where it grew away from zero, low where it
shrank. Under plain SGD it is the sum of -rate * gradient * weight of Sanh et al. 2020 with the last weight
for all of them. A pruned weight stays pruned; movement_sanh.py has the paper's own form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from kharness.training.pruning._options import PruningOptions

CITED = ("sanh2020",)

Options = PruningOptions


def remember(weight: Tensor) -> dict[str, Tensor]:
    """Where the weight began."""
    return {"initial": weight.detach().clone()}


def score(weight: Tensor, state: Mapping[str, Any]) -> Tensor:
    """A weight matters as much as it moved away from zero."""
    initial: Tensor = state["initial"]
    return weight * (weight - initial)
