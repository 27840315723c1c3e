"""Tells tensors from other values, and reads the number in one, without importing torch."""

from __future__ import annotations

import sys
from typing import Any


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor, by its type."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "Tensor") and issubclass(type(value), torch.Tensor)


def host_number(tensor: Any) -> Any:
    """Return the number in a tensor of one element; None for several, and for one on a CUDA device.

    Raises what the tensor raises, such as RuntimeError for one on the meta device.
    """
    # item() of a CUDA tensor synchronizes: the training would wait for all queued work
    return tensor.item() if tensor.numel() == 1 and not tensor.is_cuda else None
