"""State pruning, that of AdamWPrune: the optimizer's own moments score its weights.

With w the weight, m and v its first and second moment, b1 the decay of the first and t the steps:

    bitter0   |w m| |w| / (sqrt(v) + eps)
    bitter3   |w| sqrt(|m| + eps)
    bitter7   |w| (v + eps)^(1/4)
    bitter8   |w| sqrt(|m| / (1 - b1^t))

In single precision whatever the weights are in, with eps 1e-8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from kharness.training.errors import TrainingError
from kharness.training.pruning._options import PruningOptions

_EPS = 1e-8

# By weight, first moment, second moment, and 1 - b1^t, all but the last without a sign.
_VARIANTS: dict[str, Callable[[Tensor, Tensor, Tensor, Any], Tensor]] = {
    "bitter0": lambda w, m, v, corrected: w * m * w / (v.sqrt() + _EPS),
    "bitter3": lambda w, m, v, corrected: w * (m + _EPS).sqrt(),
    "bitter7": lambda w, m, v, corrected: w * (v + _EPS) ** 0.25,
    "bitter8": lambda w, m, v, corrected: w * (m / corrected).sqrt(),
}


@dataclass(frozen=True, kw_only=True)
class Options(PruningOptions):
    """Options of state pruning: the variant of the score."""

    variant: str
    """bitter0, bitter3, bitter7 or bitter8."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in _VARIANTS:
            raise TrainingError(
                f"PRUNING_STATE_VARIANT={self.variant} is not a known variant",
                hint=f"known: {', '.join(_VARIANTS)}",
            )


def score(weight: Tensor, state: Mapping[str, Any]) -> Tensor:
    """A weight matters as its variant says; TrainingError if the optimizer keeps no two moments."""
    if "exp_avg" not in state or "exp_avg_sq" not in state:
        raise TrainingError(
            "PRUNING=state: the optimizer keeps no first and second moment of each weight",
            hint="use one of the Adam family, such as OPTIMIZER=adamwprune",
        )
    first, second = state["exp_avg"].float().abs(), state["exp_avg_sq"].float()
    corrected = 1 - state["betas"][0] ** state["step"]
    return _VARIANTS[state["variant"]](weight.float().abs(), first, second, corrected)
