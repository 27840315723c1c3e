"""Averages of weights: in the model in place of the trained ones (an optimizer's own), or beside it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


@runtime_checkable
class Averaging(Protocol):
    """An optimizer that puts its average of the weights into the model, and takes it out again."""

    def eval(self) -> None: ...

    def train(self) -> None: ...


class PlainWeights:
    """A model whose weights are both trained and evaluated."""

    def to_train(self) -> None: ...

    def to_evaluate(self) -> None: ...

    def parts(self) -> dict[str, AveragedWeights]:
        return {}


class AveragedWeights:
    """A model in which the average stands between an evaluation, or a checkpoint, and the next step.

    The trained weights are kept and put back, so that an evaluation or a checkpoint changes no bit of the
    training: computed back from the average they would be rounded.
    """

    def __init__(self, model: nn.Module, optimizer: Averaging) -> None:
        self._model, self._optimizer = model, optimizer
        self._trained: dict[str, Tensor] = {}
        """Empty while they are in the model."""
        optimizer.train()

    @torch.no_grad()
    def to_train(self) -> None:
        """Have the trained weights in the model."""
        if not self._trained:
            return
        self._optimizer.train()
        for name, weight in self._model.named_parameters():
            weight.copy_(self._trained[name])
        self._trained = {}

    def to_evaluate(self) -> None:
        """Have the average in the model."""
        if not self._trained:
            self._trained = {name: weight.detach().clone() for name, weight in self._model.named_parameters()}
            self._optimizer.eval()

    def parts(self) -> dict[str, AveragedWeights]:
        """Additional parts of a checkpoint."""
        return {"trained_weights": self}

    def state_dict(self) -> Mapping[str, Any]:
        """Return the weights that training continues with; the model's entry has the average."""
        return self._trained

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have these back with the next step; ValueError if they are another model's."""
        own = dict(self._model.named_parameters())
        if {name: value.shape for name, value in state.items()} != {n: p.shape for n, p in own.items()}:
            raise ValueError("its trained weights are of another model")
        self._trained = {name: value.to(own[name].device) for name, value in state.items()}


Weights = AveragedWeights | PlainWeights


def weights_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Weights:
    """Return the weights that evaluation uses: the optimizer's average, or the trained ones."""
    return AveragedWeights(model, optimizer) if isinstance(optimizer, Averaging) else PlainWeights()


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
        """The state, in types that `torch.load(weights_only=True)` takes."""
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
