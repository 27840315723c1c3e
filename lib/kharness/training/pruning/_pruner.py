"""What a training calls after each optimiser step, so that pruned weights are zero and stay zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kharness.training.pruning._options import SparsitySchedule

Score = Callable[[Tensor, Mapping[str, Any]], Tensor]


class NoPruning:
    """A training that prunes nothing, records nothing and saves nothing about it."""

    described: Mapping[str, Any] | None = None

    def after_step(self, step: int) -> None:
        """Leave the weights alone."""

    def measured(self) -> dict[str, float | Tensor]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """ValueError if there was pruning."""
        if state:
            raise ValueError(f"it was made with PRUNING={state['method']}, not with PRUNING=none")


NO_PRUNING = NoPruning()


class Pruner:
    """Prunes a model step by step; `Parameter`s with fewer than two dimensions are never touched.

    Masks only grow. The gradient of a pruned weight still reaches its optimiser state, which has no effect:
    the weight is zero again before the next forward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        score: Score,
        schedule: SparsitySchedule,
        whole_model: bool,
        described: Mapping[str, Any],
    ) -> None:
        self.described: Mapping[str, Any] | None = described
        """Method and options, for the record."""
        self.schedule = schedule
        self.optimizer = optimizer
        self._score = score
        self._whole_model = whole_model
        self._weights = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and parameter.ndim > 1
        }
        self._pruned = {
            name: torch.zeros_like(weight, dtype=torch.bool) for name, weight in self._weights.items()
        }
        self._num_weights = sum(weight.numel() for weight in self._weights.values())
        self._last_pruning = 0

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Prune if it is time, then undo what the optimiser step (the `step`-th) did to pruned weights."""
        if self.schedule.is_due(step):
            self._prune(self.schedule(step))
            self._last_pruning = step
        if self._last_pruning:
            for name, weight in self._weights.items():
                weight.masked_fill_(self._pruned[name], 0)

    def measured(self) -> dict[str, float | Tensor]:
        """`sparsity`: the share of prunable weights that is zero, counted, for step, epoch and end records.

        On a GPU it stays a tensor there, so that nothing waits.
        """
        zeros: Any = sum((weight == 0).sum() for weight in self._weights.values())
        if zeros.is_cuda:
            return {"sparsity": zeros.double() / self._num_weights}
        return {"sparsity": zeros.item() / self._num_weights}

    def state_dict(self) -> dict[str, Any]:
        """The masks, and where the schedule was; the schedule itself follows from the options."""
        return {
            "method": self._method,
            "last_pruning": self._last_pruning,
            "pruned": {name: pruned.clone() for name, pruned in self._pruned.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from these masks; ValueError if they are another method's or another model's."""
        method = state.get("method", "none")
        if method != self._method:
            raise ValueError(f"it was made with PRUNING={method}, not with PRUNING={self._method}")
        pruned = state["pruned"]
        if {name: mask.shape for name, mask in pruned.items()} != {
            name: weight.shape for name, weight in self._weights.items()
        }:
            raise ValueError("its pruning masks are of another model")
        for name, own in self._pruned.items():
            own.copy_(pruned[name])
        self._last_pruning = state["last_pruning"]

    @property
    def _method(self) -> str:
        assert self.described is not None
        return str(self.described["name"])

    def _prune(self, sparsity: float) -> None:
        names = list(self._weights)
        for group in [names] if self._whole_model else [[name] for name in names]:
            weights = [self._weights[name] for name in group]
            # .get: asking the mapping itself would add an entry to the optimiser state
            scores = [self._score(weight, self.optimizer.state.get(weight, {})) for weight in weights]
            chosen = least_important(scores, [self._pruned[name] for name in group], sparsity)
            for name, more in zip(group, chosen, strict=True):
                self._pruned[name] |= more


def least_important(scores: Sequence[Tensor], pruned: Sequence[Tensor], sparsity: float) -> list[Tensor]:
    """Masks of the lowest scores over all tensors together, `sparsity` of the elements, rounded.

    What is pruned already comes first, whatever its score.
    """
    flat = torch.cat(
        [score.masked_fill(mask, -torch.inf).flatten() for score, mask in zip(scores, pruned, strict=True)]
    )
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen[torch.topk(flat, round(sparsity * flat.numel()), largest=False).indices] = True
    parts = torch.split(chosen, [score.numel() for score in scores])
    return [part.view(score.shape) for part, score in zip(parts, scores, strict=True)]


Pruning = Pruner | NoPruning
