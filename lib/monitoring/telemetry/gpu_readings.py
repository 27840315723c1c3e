"""A training process's readings of its own GPU: memory from torch, temperature from the driver."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from monitoring.host.correlation import own_local_rank

if TYPE_CHECKING:
    from monitoring.gpu.sample import Sampler

_GB = 1e9


def has_cuda() -> bool:
    """Whether this process computes on a GPU: torch is imported, and has begun to use CUDA."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def gpu_memory(device: Any = None) -> dict[str, float] | None:
    """GB (1e9 bytes) `allocated` and `reserved` now, and the `peak` of allocated; None without a GPU.

    As torch.cuda.memory_allocated, memory_reserved and max_memory_allocated count, of the torch.device, by
    default torch's current one; nothing waits for the GPU.
    """
    if not has_cuda():
        return None
    cuda = sys.modules["torch"].cuda
    return {
        "allocated": cuda.memory_allocated(device) / _GB,
        "reserved": cuda.memory_reserved(device) / _GB,
        "peak": cuda.max_memory_allocated(device) / _GB,
    }


def gpu_temperature(device: Any = None) -> float | None:
    """Degrees Celsius of the torch.device, by default of this process's GPU; None where no driver says so."""
    sampler = _sampler()
    if sampler is None:
        return None
    number = _own_device(device)
    places = [place for place, gpu in enumerate(sampler.devices()) if gpu.visible_index == number]
    return sampler.sample()[places[0]].temperature_celsius if places else None


def _own_device(device: Any) -> int:
    """Return N of `cuda:N`: the device's own, else of the one that this process computes on."""
    said = str(device).rpartition(":")[2]
    if said.isdecimal():
        return int(said)
    if has_cuda():
        number: int = sys.modules["torch"].cuda.current_device()
        return number
    return own_local_rank() or 0


@cache
def _sampler() -> Sampler | None:
    """Open the samplers once per process: a driver takes up to a second for it."""
    from monitoring.samplers import probe_all  # here: most processes read no temperature

    return probe_all()[0]
