"""Descriptions of a model (parameters, size, configuration) and of a dataset (structure, size, one sample).

Looking at a dataset changes nothing for the training: the random generators are put back, and what can only
be iterated over is not touched.
"""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from monitoring.journal.encoding.json_form import plain
from monitoring.journal.encoding.tensors import is_tensor
from monitoring.journal.records import Record

# Limits of a sample: fields of a mapping or items of a sequence, depth of these, and parts in all.
MOST_FIELDS = 50
DEEPEST = 4
MOST_PARTS = 500

# Elements from which a tensor has a shape and no statistics.
MOST_ELEMENTS = 10_000_000

MB = 1e6

# Values of a configuration that are kept: one of a large model holds tables of labels.
_SIMPLE = (bool, int, float, str)
LONGEST_TEXT = 200


def dataset_info(dataset: Any) -> Record:
    """`type`, `size`, `columns`, `features` and `sample`, as far as it has them; what it raises is named."""
    found: Record = {"type": type(dataset).__name__}
    problems: list[str] = []
    parts: dict[str, Callable[[Any], object]] = {
        "size": lambda it: len(it) if hasattr(type(it), "__len__") else None,
        "columns": lambda it: list(it.column_names) if getattr(it, "column_names", None) else None,
        "features": lambda it: (
            {str(name): str(kind) for name, kind in it.features.items()}
            if getattr(it, "features", None)
            else None
        ),
        "sample": _first_sample,
    }
    for name, part in parts.items():
        try:
            value = part(dataset)
        except Exception as error:  # noqa: BLE001 - the dataset's own methods are called here; it says which part
            problems.append(f"{name}: {type(error).__name__}")
            continue
        if value is not None or name == "size":
            found[name] = value
    if problems:
        found["problems"] = problems
    return plain(found)


def _first_sample(dataset: Any) -> object:
    """Return the description of sample 0, None of what has no such sample."""
    kind = type(dataset)
    if not (hasattr(kind, "__getitem__") and hasattr(kind, "__len__")) or not len(dataset):
        return None
    with _same_randomness():
        return _Sample().described(dataset[0])


class _Sample:
    """Describes one sample, part by part, up to MOST_PARTS."""

    def __init__(self) -> None:
        self._left = MOST_PARTS

    def described(self, value: Any, depth: int = 0) -> Record:
        """`type`, and by what it is: `shape`, `dtype`, `min`, `max`, `mean`, `std`, `length`, `fields`."""
        self._left -= 1
        found = _leaf(value)
        if found is not None or depth >= DEEPEST or self._left <= 0:
            return found or {"type": type(value).__name__}
        if isinstance(value, Mapping):
            items = list(value.items())[:MOST_FIELDS]
            fields = {str(key): self.described(item, depth + 1) for key, item in items}
            return {"type": type(value).__name__, "fields": fields}
        if isinstance(value, Sequence):
            parts = [self.described(item, depth + 1) for item in value[:MOST_FIELDS]]
            return {"type": type(value).__name__, "length": len(value), "items": parts}
        return {"type": type(value).__name__}


def _leaf(value: Any) -> Record | None:
    """Return the description of a value without parts of its own; None if it has some."""
    about: Record = {"type": type(value).__name__}
    if is_tensor(value) or type(value).__module__.partition(".")[0] == "numpy":
        return about | _array(value)
    if isinstance(value, str | bytes):
        return about | {"length": len(value)}
    if isinstance(value, bool | int | float):
        return about | {"value": value}
    if isinstance(value, Sequence) and value and all(type(item) in (int, float) for item in value):
        return about | {"length": len(value), "shape": [len(value)]} | _statistics(list(value))
    return None


def _array(value: Any) -> Record:
    found: Record = {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    size = int(value.numel()) if is_tensor(value) else int(value.size)
    on_gpu = bool(getattr(value, "is_cuda", False))  # its numbers would have the training wait
    if not 0 < size <= MOST_ELEMENTS or on_gpu:
        return found
    if is_tensor(value):
        value = value.detach().double()
        spread = value.std(correction=0)
    else:
        value = value.astype("float64")
        spread = value.std()
    return found | {
        "min": float(value.min()),
        "max": float(value.max()),
        "mean": float(value.mean()),
        "std": float(spread),
    }


def _statistics(values: list[float]) -> Record:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return {"min": min(values), "max": max(values), "mean": mean, "std": variance**0.5}


@contextlib.contextmanager
def _same_randomness() -> Iterator[None]:
    """Within it, what draws random numbers (an augmentation) takes none from the training's generators."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    own = random.getstate()
    of_numpy = numpy.random.get_state() if numpy is not None else None
    of_torch = torch.get_rng_state() if torch is not None else None
    with_cuda = torch is not None and torch.cuda.is_initialized()
    of_cuda = torch.cuda.get_rng_state_all() if torch is not None and with_cuda else None
    try:
        yield
    finally:
        random.setstate(own)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
        if torch is not None:
            torch.set_rng_state(of_torch)
            if of_cuda is not None:
                torch.cuda.set_rng_state_all(of_cuda)


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
