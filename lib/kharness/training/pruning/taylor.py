"""First-order Taylor pruning: Molchanov et al. 2019 (Importance Estimation for Neural Network Pruning).

The loss without a weight w is, to first order, L - g w; the paper scores by (g w)^2, here by its root, which
orders weights alike and does not underflow. As in the paper the gradient g is averaged over batches: the
running mean that the optimizer keeps anyway, Adam's first moment or SGD's momentum buffer. That leaves out
factors that all weights share. With SGD and Adam the mean contains the L2 weight decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from kharness.training.errors import TrainingError
from kharness.training.needs import no_mean_gradient
from kharness.training.pruning._options import PruningOptions

# What torch's optimizers call the running mean of the gradient.
_MEAN_GRADIENT = ("exp_avg", "momentum_buffer")

Options = PruningOptions


def check(optimizer: Optimizer) -> None:
    """TrainingError for SGD without momentum, which keeps no mean gradient."""
    if optimizer.defaults.get("momentum") == 0:
        raise no_mean_gradient()


def score(weight: Tensor, state: Mapping[str, Any]) -> Tensor:
    """How much the loss would change without each weight; TrainingError if the optimizer cannot say."""
    for name in _MEAN_GRADIENT:
        if state.get(name) is not None:
            gradient: Tensor = state[name]
            return (weight * gradient).abs()
    raise TrainingError(
        "PRUNING=taylor: the optimizer keeps no mean gradient",
        hint="use one of the Adam family, or sgd with momentum",
    )
