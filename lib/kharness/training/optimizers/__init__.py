"""Optimisers, one module each: `Options`, read from the symbols, and `build(model, options)`."""

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


def optimizer_names() -> list[str]:
    """The modules in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))


def build_optimizer(
    name: str, model: nn.Module, symbols: Mapping[str, Any]
) -> tuple[torch.optim.Optimizer, dict[str, Any]]:
    """The optimiser `name` for a model, and its options for the record; TrainingError if there is none."""
    if name not in optimizer_names():
        raise TrainingError(
            f"OPTIMIZER={name} is not a known optimizer", hint=f"known: {', '.join(optimizer_names())}"
        )
    module = importlib.import_module(f"kharness.training.optimizers.{name}")
    options = module.Options.read(symbols)
    return module.build(model, options), {"name": name, **asdict(options)}


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weights, which decay, and the rest (biases, scales), which do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weights = [parameter for parameter in parameters if parameter.ndim > 1]
    others = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups = [
        {"params": weights, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
