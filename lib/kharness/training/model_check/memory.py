"""Memory of a step by what it is for, before the step (estimated) and after it (measured)."""

from __future__ import annotations

import copy
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from kharness.training.optimizers import build_optimizer
from kharness.training.optimizers._averages import weights_of
from monitoring.host.cgroup import CgroupLimits

if TYPE_CHECKING:
    from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class StepMemory:
    """Bytes by part; None where it is not known."""

    weights: int
    """Parameters and buffers."""
    gradients: int
    optimizer_state: int | None
    activations: int | None = None
    """What the forward pass of one micro-batch keeps for its backward pass."""

    @property
    def total(self) -> int | None:
        """None where a part is not known."""
        parts = astuple(self)
        return None if None in parts else sum(parts)


class SavedTensors:
    """Bytes that forward passes keep for backward, each storage once, besides those of the weights."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = {_storage(tensor) for tensor in tensors_of(model)}
        self._bytes: dict[int, int] = {}

    @property
    def num_bytes(self) -> int:
        return sum(self._bytes.values())

    def hooks(self) -> saved_tensors_hooks:
        """While entered, what is kept is counted."""
        return saved_tensors_hooks(self._count, lambda tensor: tensor)

    def _count(self, tensor: Tensor) -> Tensor:
        key = _storage(tensor)
        if key not in self._weights:
            self._bytes[key] = tensor.untyped_storage().nbytes()
        return tensor


def estimated_memory(model: nn.Module, optimizer: str, symbols: Mapping[str, Any]) -> StepMemory:
    """By the shapes of the weights; the optimizer's state by a step of it on the meta device.

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
    """As it is after a step."""
    return StepMemory(
        weights=num_bytes(tensors_of(model)),
        gradients=num_bytes(weight.grad for weight in model.parameters() if weight.grad is not None),
        optimizer_state=state_bytes(optimizer),
        activations=activations,
    )


class ModelWithoutValues:
    """The same model on tensors that have a shape and a device, and no memory."""

    def __init__(self, model: nn.Module) -> None:
        """As it is now: later hooks are not in it."""
        self.recomputed_flops = 0
        """Of those that `step` counted: what backward computed a second time, as with checkpointing."""
        self._is_backward = False
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._model = copy_without_values(model, self._mode.from_tensor)

    def step(self, inputs: Sequence[Any]) -> tuple[int, int] | tuple[None, None]:
        """Bytes that a forward pass keeps, and FLOPs of it and its backward pass.

        None of a model that looks at values. What the loss keeps and the optimizer computes is not in them.
        """
        with suppress(RuntimeError, NotImplementedError), self._mode:
            kept = SavedTensors(self._model)
            with _flop_counter(self._note_recomputed) as counter:
                with kept.hooks():
                    found = self._model(*(self._faked(value) for value in inputs))
                activations = kept.num_bytes
                self._is_backward = True
                found.sum().backward()
            return activations, counter.get_total_flops()
        return None, None

    def _note_recomputed(self, flops: int) -> None:
        """Backward itself computes without gradients; what it computes with them is a forward pass again."""
        if self._is_backward and torch.is_grad_enabled():
            self.recomputed_flops += flops

    def _faked(self, value: Any) -> Any:
        return self._mode.from_tensor(value) if isinstance(value, Tensor) else value


def copy_without_values(model: nn.Module, made: Callable[[Tensor], Tensor]) -> nn.Module:
    """The model with `made(tensor)` for each of its weights and buffers, shared ones shared."""
    memo: dict[int, Any] = {}
    for tensor in tensors_of(model):
        like = made(tensor.detach())
        is_weight = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(like, tensor.requires_grad) if is_weight else like
    return copy.deepcopy(model, memo)


def tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """Weights and buffers."""
    yield from model.parameters()
    yield from model.buffers()


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Of all of them together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Of the tensors in its state."""
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


def _storage(tensor: Tensor) -> int:
    """Which storage it is as long as it lives; tensors without values have no address."""
    return int(tensor.untyped_storage()._cdata)


def _flop_counter(note: Callable[[int], None]) -> FlopCounterMode:
    """Counts the fused attention of the CPU too, which torch's counter does not know by itself.

    Calls `note` with the FLOPs of each operation.
    """
    from torch.utils import flop_counter  # here: every training imports this module

    def forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(flop_counter.sdpa_flop_count(query, key, value))

    def backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(flop_counter.sdpa_backward_flop_count(gradient, query, key, value))

    def noted(count: Callable[..., int]) -> Callable[..., int]:
        def counted(*shapes: Any, **named: Any) -> int:
            flops = count(*shapes, **named)
            note(flops)
            return flops

        counted._get_raw = True  # type: ignore[attr-defined]  # as torch marks those that take tensors
        return counted

    attention = {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flop_counter.shape_wrapper(forward),
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_counter.shape_wrapper(
            backward
        ),
    }
    known = {**flop_counter.flop_registry, **attention}
    mapping = {operation: noted(count) for operation, count in known.items()}
    return flop_counter.FlopCounterMode(display=False, custom_mapping=mapping)
