"""Pruning during training: masks updated after optimizer steps, so that pruned weights are zero and stay
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from kharness.training.errors import TrainingError
from kharness.training.pruning._options import SparsitySchedule

# Whose weights are pruned.
_LAYERS = (nn.Bilinear, nn.Linear, nn.MultiheadAttention, nn.RNNBase, nn.modules.conv._ConvNd)

# Optimizer state that is a weight itself (Schedule-Free's), so that it is pruned with it.
_WEIGHT_IN_STATE = "z"


class NoPruning:
    """A training that prunes nothing, records nothing and saves nothing about it."""

    described: Mapping[str, Any] | None = None

    def after_step(self, step: int) -> None:
        """Leave the weights alone."""

    def after_average(self, average: nn.Module) -> None:
        """Leave the average alone."""

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
    """Prunes a model step by step: the weights of its linear and convolution layers, a shared one once.

    Masks only grow, unless the method holds values by which weights return. The gradient of a pruned weight
    still reaches the optimizer. Where every element has an update of its own that has no effect: the weight
    is zero again before the next forward pass. Norms (clipping) and matrices (Muon, SOAP) still count it.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        name: str,
        method: ModuleType,
        options: Any,
        num_steps: int,
    ) -> None:
        self.described: Mapping[str, Any] | None = {"name": name, **asdict(options)}
        """Method and options, for the record."""
        self.schedule: SparsitySchedule = options.schedule(num_steps)
        self.optimizer = optimizer
        self._method = method
        self._whole_model: bool = options.whole_model
        fits: Callable[[Tensor], bool] = getattr(method, "fits", lambda weight: True)
        self._weights = {name: weight for name, weight in prunable(model).items() if fits(weight)}
        if not self._weights:
            raise TrainingError(
                f"PRUNING={name}: the model has no weights that it can prune",
                hint="choose another method, or PRUNING=none",
            )
        self._pruned = {
            name: torch.zeros_like(weight, dtype=torch.bool) for name, weight in self._weights.items()
        }
        self._num_weights = sum(weight.numel() for weight in self._weights.values())
        self._last_pruning = 0
        self._memory: dict[str, dict[str, Tensor]] = {}
        if hasattr(method, "remember"):
            self._memory = {name: method.remember(weight) for name, weight in self._weights.items()}
        if hasattr(method, "learn"):
            # gradients as the optimizer gets them: averaged over the ranks, and clipped
            optimizer.register_step_pre_hook(self._learn)
        self.agree: Callable[[Sequence[Tensor]], None] | None = None
        """Copies rank 0's masks to all ranks, in a training of several processes."""

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Prune if due, then reset pruned weights that the optimizer's `step`-th step changed."""
        if self.schedule.is_due(step):
            self._prune(self.schedule(step))
            self._last_pruning = step
        # The optimizer moved pruned weights too, by momentum or decay: they are zero again before the next
        # forward.
        if self._last_pruning:
            for name, weight in self._weights.items():
                weight.masked_fill_(self._pruned[name], 0)
                copy = self.optimizer.state.get(weight, {}).get(_WEIGHT_IN_STATE)
                if copy is not None:
                    copy.masked_fill_(self._pruned[name], 0)

    @torch.no_grad()
    def after_average(self, average: nn.Module) -> None:
        """Prune a moving average of the model's weights alike, in which they would only fade."""
        if self._last_pruning:
            averages = dict(average.named_parameters())
            for name, pruned in self._pruned.items():
                averages[name].masked_fill_(pruned, 0)

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
        memory = {name: dict(memory) for name, memory in self._memory.items()}
        return {
            "method": self._name,
            "last_pruning": self._last_pruning,
            "pruned": {name: pruned.clone() for name, pruned in self._pruned.items()},
            **({"memory": memory} if memory else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from these masks; ValueError if they are another method's or another model's."""
        method = state.get("method", "none")
        if method != self._name:
            raise ValueError(f"it was made with PRUNING={method}, not with PRUNING={self._name}")
        pruned = state["pruned"]
        if {name: mask.shape for name, mask in pruned.items()} != {
            name: weight.shape for name, weight in self._weights.items()
        }:
            raise ValueError("its pruning masks are of another model")
        for name, own in self._pruned.items():
            own.copy_(pruned[name])
        for name, remembered in self._memory.items():
            for key, value in remembered.items():
                value.copy_(state["memory"][name][key])
        self._last_pruning = state["last_pruning"]

    @property
    def _name(self) -> str:
        assert self.described is not None
        return str(self.described["name"])

    def _prune(self, sparsity: float) -> None:
        # Methods that let weights return score the values that these had when they were pruned, not their
        # zeros.
        held = {name: memory["held"] for name, memory in self._memory.items() if "held" in memory}
        for name, values in held.items():
            self._weights[name].copy_(torch.where(self._pruned[name], values, self._weights[name]))
            self._pruned[name].zero_()
        names = list(self._weights)
        for group in [names] if self._whole_model else [[name] for name in names]:
            scores = [self._method.score(self._weights[name], self._state(name)) for name in group]
            chosen = least_important(scores, [self._pruned[name] for name in group], sparsity)
            for name, more in zip(group, chosen, strict=True):
                self._pruned[name] |= more
        if self.agree is not None:  # scores may be drawn, and each rank draws its own
            self.agree(list(self._pruned.values()))
        for name, values in held.items():
            values.copy_(self._weights[name])

    @torch.no_grad()
    def _learn(self, *_: object) -> None:
        for name, weight in self._weights.items():
            if weight.grad is not None:
                self._method.learn(weight, weight.grad, self._state(name))

    def _state(self, name: str) -> dict[str, Any]:
        """Return the inputs of a score."""
        weight = self._weights[name]
        # by identity: `in` would compare the elements of tensors
        group = next(
            group for group in self.optimizer.param_groups if any(weight is one for one in group["params"])
        )
        # .get: asking the mapping itself would add an entry to the optimizer state
        kept = self.optimizer.state.get(weight, {})
        assert self.described is not None
        return {
            **self.described,
            **group,
            **kept,
            **self._memory.get(name, {}),
            "pruned": self._pruned[name],
        }


def prunable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights of linear layers and convolutions by name, also where an embedding shares one."""
    of_layers = {
        weight
        for layer in model.modules()
        if isinstance(layer, _LAYERS)
        for name, weight in layer.named_parameters(recurse=False)
        if weight.requires_grad and weight.ndim > 1 and "bias" not in name
    }
    return {name: weight for name, weight in model.named_parameters() if weight in of_layers}


def least_important(scores: Sequence[Tensor], pruned: Sequence[Tensor], sparsity: float) -> list[Tensor]:
    """Masks of the lowest scores over all tensors together, `sparsity` of the elements, rounded.

    What is pruned already comes first, whatever its score.
    """
    flat = torch.cat(
        [score.masked_fill(mask, -torch.inf).flatten() for score, mask in zip(scores, pruned, strict=True)]
    )
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    # by number and not by a threshold: of equal scores, as of zeros, it would take all or none
    chosen[torch.topk(flat, round(sparsity * flat.numel()), largest=False).indices] = True
    parts = torch.split(chosen, [score.numel() for score in scores])
    return [part.view(score.shape) for part, score in zip(parts, scores, strict=True)]


Pruning = Pruner | NoPruning
