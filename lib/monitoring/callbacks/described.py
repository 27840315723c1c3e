"""Describes a model of any framework, and the adapters that are trained in it, for start records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def model_fields(model: Any) -> dict[str, object]:
    """`name`, `architecture` and `parameters` (counts) of a torch module, None where it does not say."""
    configured = getattr(model, "config", None)
    counts = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return {
        "name": getattr(configured, "model_type", None) or type(model).__name__,
        "architecture": type(_base(model)).__name__,
        "parameters": sum(count for count, _ in counts),
        "trainable_parameters": sum(count for count, trained in counts if trained),
    }


def model_config(model: Any) -> dict[str, object]:
    """`model_config` of a model that has one, as transformers' have, or a dataclass; nothing of another."""
    configured = getattr(model, "config", None)
    to_dict = getattr(configured, "to_dict", None)
    try:
        if callable(to_dict):
            configured = to_dict()
        elif dataclasses.is_dataclass(configured) and not isinstance(configured, type):
            configured = dataclasses.asdict(configured)
    except Exception:  # noqa: BLE001 - the model's own methods are called here; a training begins without it
        return {}
    return {"model_config": dict(configured)} if isinstance(configured, Mapping) else {}


def gradient_norm(model: Any) -> Any:
    """The L2 norm of all gradients of a torch module, as a scalar on its device: no device is waited for."""
    import torch  # the model's own

    return torch.nn.utils.get_total_norm([one.grad for one in model.parameters() if one.grad is not None])


def adapter_fields(model: Any) -> dict[str, object]:
    """`lora_rank`, `lora_alpha`, `lora_dropout` and `target_modules` of a PEFT model; nothing of another.

    Of several adapters it is the active one, else the first.
    """
    adapters = getattr(model, "peft_config", None)
    if not isinstance(adapters, Mapping) or not adapters:
        return {}
    active = getattr(model, "active_adapter", None)
    config = adapters.get(active if isinstance(active, str) else "") or next(iter(adapters.values()))
    modules = getattr(config, "target_modules", None)
    return {
        "lora_rank": getattr(config, "r", None),
        "lora_alpha": getattr(config, "lora_alpha", None),
        "lora_dropout": getattr(config, "lora_dropout", None),
        # a set in PEFT, whose order changes from process to process; or a pattern
        "target_modules": modules if modules is None or isinstance(modules, str) else sorted(modules),
    }


def _base(model: Any) -> Any:
    """Return the model within PEFT's wrapper."""
    unwrap = getattr(model, "get_base_model", None)
    return unwrap() if callable(unwrap) else model
