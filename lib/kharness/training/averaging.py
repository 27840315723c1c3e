"""An exponential moving average of the weights beside those that are trained."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

# As TensorFlow's ExponentialMovingAverage has it with num_updates: the first weights are soon forgotten.
_FIRST = 10


class MovingAverage:
    """The average of a model's weights and of its buffers, such as the statistics of batch norm.

    After n updates it keeps a share min(decay, (1 + n) / (10 + n)) of itself. torch's AveragedModel has the
    same rule but for the beginning, and has the GPU wait for its counter in each step.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = deepcopy(model).requires_grad_(False)
        """To evaluate."""
        self.updates = 0
        self._decay = decay
        pairs = list(zip(_values(self.model), _values(model), strict=True))
        self._averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self._copied = [pair for pair in pairs if not pair[0].is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        """Follow the model by one step."""
        kept = min(self._decay, (1 + self.updates) / (_FIRST + self.updates))
        average, now = (list(values) for values in zip(*self._averaged, strict=True))
        get_ema_multi_avg_fn(kept)(average, now, self.updates)
        for mine, its in self._copied:
            mine.copy_(its)
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        """In types that `torch.load(weights_only=True)` takes."""
        return {"model": self.model.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the state was taken."""
        self.model.load_state_dict(state["model"])
        self.updates = state["updates"]


def moving_average(model: nn.Module, decay: float | None) -> MovingAverage | None:
    """The average of EMA_DECAY, None for a decay of 0 and where there is no such option."""
    return MovingAverage(model, decay) if decay else None


def _values(model: nn.Module) -> list[torch.Tensor]:
    return [value.detach() for value in chain(model.parameters(), model.buffers())]
