"""The closure of torch's `Optimizer.step`, which computes the loss and its gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch


def value_of(closure: Callable[[], float] | None) -> float | None:
    """Evaluate the closure of a step, which computes the gradients; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
