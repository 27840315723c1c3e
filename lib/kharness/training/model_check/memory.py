"""Memory of a step by purpose (weights, gradients, …), estimated before the step and measured after it."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kharness.training.fake_tensors import copy_without_values, tensors_of
from kharness.training.optimizers import build_optimizer
from kharness.training.optimizers._averages import weights_of
from monitoring.host.cgroup import CgroupLimits


@dataclass(frozen=True)
class StepMemory:
    """Bytes by part; None where it is not known."""

    weights: int
    """Parameters and buffers."""
    gradients: int
    optimizer_state: int | None
    activations: int | None = None
    """Bytes that the forward pass of one micro-batch keeps for its backward pass."""

    @property
    def total(self) -> int | None:
        """None where a part is not known."""
        parts = astuple(self)
        return None if None in parts else sum(parts)


def estimated_memory(model: nn.Module, optimizer: str, symbols: Mapping[str, Any]) -> StepMemory:
    """Estimate from the shapes of the weights; the optimizer's state from a step of it on the meta device.

    An optimizer that looks at values cannot step there, so its state is not known before.
    """
    state: int | None = None
    meta = copy_without_values(model, lambda tensor: torch.empty_like(tensor, device="meta"))
    with suppress(RuntimeError, NotImplementedError):
        stepping, _ = build_optimizer(optimizer, meta, symbols)
        for group in stepping.param_groups:
            group["fused"] = False  # such steps are not on the meta device; their state is the same
        for weight in _trained(meta):
            weight.grad = torch.empty_like(weight)
        weights_of(meta, stepping).to_train()
        stepping.step()
        state = state_bytes(stepping)
    return StepMemory(
        weights=num_bytes(tensors_of(model)), gradients=num_bytes(_trained(model)), optimizer_state=state
    )


def measured_memory(model: nn.Module, optimizer: torch.optim.Optimizer, activations: int) -> StepMemory:
    """Measure the memory after a step."""
    return StepMemory(
        weights=num_bytes(tensors_of(model)),
        gradients=num_bytes(weight.grad for weight in model.parameters() if weight.grad is not None),
        optimizer_state=state_bytes(optimizer),
        activations=activations,
    )


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total size of the tensors in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the size of the tensors in the optimizer's state in bytes."""
    return num_bytes(_tensors_in(list(optimizer.state.values())))


def free_memory(device: torch.device, root: Path = Path("/")) -> int | None:
    """Bytes that a training can still get on the device; None where the system does not say.

    On a CPU what is available, a limit of our cgroup and those of this process (`ulimit -v`, `ulimit -d`)
    count; `root` has `proc` and what is mounted.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + torch.cuda.memory_reserved(device)
    free = [bytes_in(root / "proc/meminfo", "MemAvailable")]
    total = bytes_in(root / "proc/meminfo", "MemTotal")
    if total is not None and (limit := CgroupLimits(root).memory(total)) is not None:
        free.append(max(0, limit.total - limit.used))
    for number, taken in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, used = resource.getrlimit(number)[0], bytes_in(root / "proc/self/status", taken)
        if most != resource.RLIM_INFINITY and used is not None:
            free.append(max(0, most - used))
    return min((found for found in free if found is not None), default=None)


def bytes_in(file: Path, name: str) -> int | None:
    """A value of a file of /proc, which writes them as `Name:   12 kB`."""
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def _tensors_in(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors_in(one)
