"""Pruning methods, one module each: `Options`, given from the symbols, and `score(weight, state)`.

A score says how much each element of a weight matters; the least important become zero and stay zero. `state`
is what there is to judge it by: the optimizer's state of the weight, the options of its group and of the
method, the mask `pruned`, and what the method remembers. What a method may define besides:

- `check(optimizer)` raises a TrainingError where it does not work with an optimizer.
- `fits(weight)`: whether it prunes such a weight at all.
- `remember(weight)`: tensors by name that it keeps of a weight, from the beginning of the training and in
  checkpoints. One named `held` has pruned weights return: it holds the values that they were pruned at.
- `learn(weight, gradient, state)` is called before each step of the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kharness.training.errors import TrainingError
from kharness.training.pruning._pruner import NO_PRUNING, NoPruning, Pruner, Pruning
from monitoring.dropins import DropIns

__all__ = ["NO_PRUNING", "PRUNING_METHODS", "NoPruning", "Pruner", "Pruning", "build_pruner"]

PRUNING_METHODS = DropIns(
    "pruning method",
    "kharness.training.pruning",
    prefix="pruning",
    symbols={
        "end_fraction": "PRUNING_END_FRACTION",
        "every": "PRUNING_EVERY",
        "sparsity": "PRUNING_SPARSITY",
        "sparsity_schedule": "SPARSITY_SCHEDULE",
        "start_fraction": "PRUNING_START_FRACTION",
        "whole_model": "PRUNING_GLOBAL",
    },
    unknown=TrainingError,
    refused=TrainingError,
)


def build_pruner(
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    symbols: Mapping[str, Any],
    *,
    num_steps: int,
) -> Pruning:
    """Build the pruner of the method `name`, `none` for no pruning; raise TrainingError for an unknown
    one.
    """
    if name == "none":
        return NO_PRUNING
    method = PRUNING_METHODS.load(name)
    options = PRUNING_METHODS.options(name, symbols)
    if hasattr(method, "check"):
        method.check(optimizer)
    return Pruner(model, optimizer, name=name, method=method, options=options, num_steps=num_steps)
