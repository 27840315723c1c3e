"""Cautious weight decay: Chen et al. 2025 (arXiv 2510.12402), algorithm 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def decay_cautiously(optimizer: Optimizer) -> None:
    """Have an optimizer with decoupled decay shrink only the elements that its own update shrinks.

    Those whose update, as it is subtracted, has the sign of the weight, or is zero. The update is read off
    the weights: torch's step runs without decay, between two hooks.
    """
    decaying: list[tuple[dict[str, Any], float, list[Tensor], list[Tensor]]] = []

    @torch.no_grad()
    def before(*_: object) -> None:
        decaying.clear()
        for group in optimizer.param_groups:
            if decay := group["weight_decay"]:
                weights = [weight for weight in group["params"] if weight.grad is not None]
                decaying.append((group, decay, weights, [weight.clone() for weight in weights]))
                group["weight_decay"] = 0.0

    @torch.no_grad()
    def after(*_: object) -> None:
        for group, decay, weights, starts in decaying:
            group["weight_decay"] = decay
            for weight, start in zip(weights, starts, strict=True):
                shrinks = (start - weight) * start >= 0
                weight.sub_(start * shrinks, alpha=float(group["lr"]) * decay)
        decaying.clear()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
