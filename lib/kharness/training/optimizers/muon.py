"""Muon: Jordan et al. 2024 (Muon: An optimizer for hidden layers in neural networks), AdamW for the rest.

Taken: torch.optim.Muon for the hidden matrices, torch.optim.AdamW for everything else: embeddings, the last
linear layer, biases, norms, scalars, and the weights of convolutions, which torch's Muon does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import StateDict

from kharness.training.optimizers import parameter_groups


@dataclass(frozen=True)
class Options:
    """What Muon does with a gradient."""

    learning_rate: float
    """Of the hidden matrices; the schedule moves both rates alike."""
    momentum: float
    nesterov: bool
    match_adamw: bool
    """Scale updates to the size of AdamW's, by 0.2 sqrt(larger dimension), not by sqrt(rows / columns)."""
    adamw_rate: float
    """Peak learning rate of everything else."""
    adamw_betas: tuple[float, float]
    """Decay of the first and of the second moment."""
    adamw_eps: float
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's Muon and torch's AdamW, its fused kernel, as one."""
    hidden = hidden_matrices(model)
    parts: list[torch.optim.Optimizer] = []
    groups = parameter_groups(model, options.weight_decay)
    matrices = _only(groups, lambda weight: weight in hidden)
    if matrices:
        parts.append(
            torch.optim.Muon(
                matrices,
                lr=options.learning_rate,
                momentum=options.momentum,
                nesterov=options.nesterov,
                adjust_lr_fn="match_rms_adamw" if options.match_adamw else "original",
            )
        )
    rest = _only(groups, lambda weight: weight not in hidden)
    if rest:
        part = torch.optim.AdamW(
            rest, lr=options.adamw_rate, betas=options.adamw_betas, eps=options.adamw_eps, fused=True
        )
        for group in part.param_groups:
            group["rate_scale"] = options.adamw_rate / options.learning_rate
        parts.append(part)
    return Together(parts)


def hidden_matrices(model: nn.Module) -> set[nn.Parameter]:
    """The matrices that Muon trains: all but embeddings and the last linear layer, tied or not."""
    layers = list(model.modules())
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    outside = [layer for layer in layers if isinstance(layer, nn.Embedding | nn.EmbeddingBag)] + linear[-1:]
    excluded = {parameter for layer in outside for parameter in layer.parameters()}
    return {parameter for parameter in model.parameters() if parameter.ndim == 2} - excluded


class Together(torch.optim.Optimizer):
    """Optimisers of different parameters as one, whose groups and state are theirs."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self._parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no training of ours has a closure
        """One step of each part."""
        for part in self._parts:
            part.step()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """As torch's, which replaces groups and state by new ones."""
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self._parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.state = self.state


def _only(groups: list[dict[str, Any]], belongs: Callable[[Tensor], bool]) -> list[dict[str, Any]]:
    """The groups with the parameters that belong, without those that become empty."""
    kept = [{**group, "params": [one for one in group["params"] if belongs(one)]} for group in groups]
    return [group for group in kept if group["params"]]
