"""The ranks of a training as torch.distributed knows them, where a process has imported and begun it."""

from __future__ import annotations

import sys
from typing import Any

from monitoring.host import correlation


def has_process_group() -> bool:
    """Whether this process can talk to other ranks."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()


def own_rank() -> int:
    """Return the rank in the process group, else by the launcher; 0 in a training of one process."""
    if has_process_group():
        rank: int = sys.modules["torch"].distributed.get_rank()
        return rank
    return correlation.own_rank()


def gathered(value: Any) -> list[Any]:
    """Return each rank's `value`, in rank order: a collective, which all ranks call."""
    distributed = sys.modules["torch"].distributed
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
