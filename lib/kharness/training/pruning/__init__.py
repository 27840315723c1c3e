"""Pruning methods, one module each: `Options`, read from the symbols, and `score(weight, state)`.

A score says how much each element of a weight matters; the least important become zero and stay zero.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kharness.training.errors import TrainingError
from kharness.training.pruning._pruner import NO_PRUNING, NoPruning, Pruner, Pruning

__all__ = ["NO_PRUNING", "NoPruning", "Pruner", "Pruning", "build_pruner", "pruning_names"]


def pruning_names() -> list[str]:
    """The modules in this folder that are methods."""
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in names if not name.startswith("_"))


def build_pruner(
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    symbols: Mapping[str, Any],
    *,
    num_steps: int,
) -> Pruning:
    """What prunes a model by the method `name`, `none` by not pruning; TrainingError if there is no such."""
    if name == "none":
        return NO_PRUNING
    if name not in pruning_names():
        known = ", ".join(["none", *pruning_names()])
        raise TrainingError(f"PRUNING={name} is not a known pruning method", hint=f"known: {known}")
    method = importlib.import_module(f"kharness.training.pruning.{name}")
    options = method.Options.read(symbols)
    return Pruner(
        model,
        optimizer,
        score=method.score,
        schedule=options.schedule(num_steps),
        whole_model=options.whole_model,
        described={"name": name, **asdict(options)},
    )
