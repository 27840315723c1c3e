"""Optimizers, one module each: `Options`, given from the symbols, and `build(model, options)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from kharness.training.errors import TrainingError
from kharness.training.optimizers._before_step import decay_cautiously
from monitoring.dropins import DropIns

# Whose parameters are scales and shifts, whatever their dimensions.
_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)

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
    """The optimizer `name` for a model, and its options and groups for the record.

    TrainingError for an unknown one, or where its package is not installed.
    """
    options = OPTIMIZERS.options(name, symbols)
    try:
        optimizer: torch.optim.Optimizer = OPTIMIZERS.load(name).build(model, options)
    except ModuleNotFoundError as error:
        raise TrainingError(
            f"OPTIMIZER={name} needs {error.name}, which is not installed",
            hint=f"pip install {error.name}",
        ) from error
    if symbols.get("WEIGHT_DECAY_ALL"):
        for group in optimizer.param_groups:
            group["weight_decay"] = options.weight_decay
    described = {"name": name, **asdict(options), "groups": described_groups(model, optimizer)}
    if symbols.get("WEIGHT_DECAY_CAUTIOUS"):
        decay_cautiously(optimizer)
        described["cautious_decay"] = True
    return optimizer, described


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weights, which decay, and biases, norms and other vectors, which do not."""
    exempt = {
        parameter
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim < 2 or "bias" in name or isinstance(module, _NORMS)
    }
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weights = [parameter for parameter in parameters if parameter not in exempt]
    others = [parameter for parameter in parameters if parameter in exempt]
    groups = [
        {"params": weights, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def described_groups(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Describe each parameter group: names, number of elements, weight decay and peak learning rate."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [
        {
            "names": [names[parameter] for parameter in group["params"]],
            "count": sum(parameter.numel() for parameter in group["params"]),
            "weight_decay": group["weight_decay"],
            "learning_rate": group["lr"],
        }
        for group in optimizer.param_groups
    ]
