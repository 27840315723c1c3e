"""Tensors of which each process of a training holds a part (torch.distributed.tensor.DTensor).

They are known by what they can do: torch's module of them takes seconds to import, and most trainings have
none.
"""

from __future__ import annotations

from torch import Tensor


def is_sharded(value: object) -> bool:
    """Whether this is such a tensor."""
    return hasattr(value, "full_tensor")


def full(tensor: Tensor) -> Tensor:
    """All of a tensor, on every process; where it is sharded, all of them have to call this."""
    if not is_sharded(tensor):
        return tensor
    found: Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
    return found
