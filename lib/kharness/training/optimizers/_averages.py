"""Which weights are in the model: those that are trained, or the average that an optimizer keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


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
