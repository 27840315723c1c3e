"""Changes to gradients, moments, learning rate and decay around torch's own optimizer step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def before_each_step(optimizer: Optimizer, prepare: Callable[[int], float]) -> None:
    """Call `prepare` with the number of each step, from 1, and scale that step's rate by what it returns.

    The number is counted in the first group, so that a checkpoint keeps it.
    """
    optimizer.param_groups[0]["steps"] = 0
    rates: list[float] = []

    @torch.no_grad()
    def before(*_: object) -> None:
        optimizer.param_groups[0]["steps"] += 1
        scale = prepare(optimizer.param_groups[0]["steps"])
        rates[:] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] *= scale

    def after(*_: object) -> None:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def moments(optimizer: Optimizer) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Gradient, first and second moment of each parameter that has all three."""
    for parameter, state in optimizer.state.items():
        if parameter.grad is not None and "exp_avg" in state:
            yield parameter.grad, state["exp_avg"], state["exp_avg_sq"]


def scale_moments(optimizer: Optimizer, first: Tensor | float, second: Tensor | float) -> None:
    """Multiply all first and second moments; zeros forget them."""
    for _, mean, square in moments(optimizer):
        mean.mul_(first)
        square.mul_(second)


def warm_up(steps_since: int, num_steps: int) -> float:
    """Half a cosine from above 0 in the step of a reset (0 steps since) to 1 in the last of `num_steps`."""
    if steps_since >= num_steps:
        return 1.0
    return (1 - math.cos(math.pi * (steps_since + 1) / num_steps)) / 2


def decay_cautiously(optimizer: Optimizer) -> None:
    """Have an optimizer with decoupled decay shrink only the elements that its own update shrinks.

    Cautious weight decay: Chen et al. 2025 (arXiv 2510.12402), algorithm 1.

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
                # The mask of algorithm 1: the update that is subtracted, here start - weight, times the
                # weight.
                shrinks = (start - weight) * start >= 0
                weight.sub_(start * shrinks, alpha=float(group["lr"]) * decay)
        decaying.clear()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
