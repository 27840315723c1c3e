"""Optimisers, one module each: `Options`, given from the symbols, and `build(model, options)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from kharness.training.errors import TrainingError
from monitoring.dropins import DropIns

OPTIMIZERS = DropIns(
    "optimizer",
    "kharness.training.optimizers",
    symbols={"learning_rate": "LEARNING_RATE", "weight_decay": "WEIGHT_DECAY"},
    unknown=TrainingError,
    refused=TrainingError,
)


def build_optimizer(
    name: str, model: nn.Module, symbols: Mapping[str, Any]
) -> tuple[torch.optim.Optimizer, dict[str, Any]]:
    """The optimiser `name` for a model, and its options for the record; TrainingError for an unknown one."""
    options = OPTIMIZERS.options(name, symbols)
    return OPTIMIZERS.load(name).build(model, options), {"name": name, **asdict(options)}


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
