"""Tensors of which each process of a training holds a part (torch.distributed.tensor.DTensor).

They are known by what they can do: torch's module of them takes seconds to import, and most trainings have
none.
"""

from __future__ import annotations

from typing import Any

import torch
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


def part(tensor: Tensor, like: Any) -> Tensor:
    """This rank's part of a tensor that every rank has, sharded as another is; nothing is sent."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def part_from(rank: int, tensor: Tensor | None, like: Any) -> Tensor:
    """This rank's part of a tensor that only `rank` has, of the shape of another and sharded as that is.

    All ranks have to call this.
    """
    from torch.distributed.tensor import distribute_tensor

    if tensor is None:
        tensor = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    tensor = tensor.to(like.dtype).contiguous()
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=rank)
