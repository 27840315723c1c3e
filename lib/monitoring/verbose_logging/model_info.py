"""A description of a model: its parameters, its size and its configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from monitoring.journal.encoding.json_form import plain
from monitoring.journal.records import Record

MB = 1e6

# Values of a configuration that are kept: one of a large model holds tables of labels.
_SIMPLE = (bool, int, float, str)
LONGEST_TEXT = 200


def model_info(model: Any) -> Record:
    """Class, parameters, size in MB (1e6 bytes, of parameters and buffers as they are stored), configuration.

    An object that is no torch module is described by what it has; never raises for what the object does.
    """
    found: Record = {"name": type(model).__name__}
    for part in (_parameters, _size, _config):
        try:
            found |= part(model)
        except Exception as error:  # noqa: BLE001 - the model's own methods are called here; it says which part
            found.setdefault("problems", []).append(f"{part.__name__[1:]}: {type(error).__name__}")  # type: ignore[attr-defined]
    return plain(found)


def _parameters(model: Any) -> Record:
    total = trainable = 0
    types: dict[str, int] = {}
    for parameter in model.parameters():
        count = _count(parameter)
        total += count
        trainable += count if parameter.requires_grad else 0
        kind = str(parameter.dtype).removeprefix("torch.")
        types[kind] = types.get(kind, 0) + count
    return {
        "total_parameters": total,
        "trainable_parameters": trainable,
        "trainable_percent": 100 * trainable / total if total else None,
        "parameters_by_dtype": types,
    }


def _count(parameter: Any) -> int:
    """Return a parameter's elements; of a packed one of bitsandbytes, those that it stands for."""
    packed = getattr(parameter, "quant_state", None)
    shape = getattr(packed, "shape", None)
    return int(parameter.numel()) if shape is None else math.prod(shape)


def _size(model: Any) -> Record:
    stored = [*model.parameters(), *model.buffers()]
    return {
        "size_mb": sum(tensor.numel() * tensor.element_size() for tensor in stored) / MB,
        "devices": sorted({str(tensor.device) for tensor in stored}),
    }


def _config(model: Any) -> Record:
    config: Any = getattr(model, "config", None)
    values = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(values, Mapping):
        return {}
    kept = {key: value for key, value in values.items() if type(value) in _SIMPLE}
    return {"config": {key: v[:LONGEST_TEXT] if isinstance(v, str) else v for key, v in kept.items()}}
