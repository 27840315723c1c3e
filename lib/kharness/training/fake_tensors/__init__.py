"""A model on tensors that have a shape and a device, and no memory: what a step of it computes and keeps."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map

if TYPE_CHECKING:
    from torch.utils.flop_counter import FlopCounterMode


class Kind(NamedTuple):
    """Kind of an operation, on which the peak rate of a device depends."""

    is_convolution: bool
    dtype: torch.dtype | None
    """Input dtype after autocast; None if no input is floating point."""


class ModelWithoutValues:
    """The same model on tensors that have a shape and a device, and no memory."""

    def __init__(self, model: nn.Module) -> None:
        """Copy the model as it is now: later hooks are not in the copy."""
        self.flops: Counter[Kind] = Counter()
        """Those that `step` counted."""
        self.recomputed: Counter[Kind] = Counter()
        """FLOPs of these that the backward pass recomputed, as with activation checkpointing."""
        self._is_backward = False
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._model = copy_without_values(model, self._mode.from_tensor)

    def step(
        self, inputs: Sequence[Any], named: Mapping[str, Any] | None = None
    ) -> tuple[int, int] | tuple[None, None]:
        """Return the bytes that a forward pass saves, and the FLOPs of forward and backward.

        None of a model that looks at values, or that returns no tensor with a gradient; it may stand in a
        tuple, a list or a dict. What the loss keeps and the optimizer computes is not in them.
        """
        with suppress(RuntimeError, NotImplementedError), self._mode:
            kept = SavedTensors(self._model)
            with _flop_counter(self._note) as counter:
                with kept.hooks():
                    faked, faked_named = tree_map(self._faked, (tuple(inputs), dict(named or {})))
                    found = self._model(*faked, **faked_named)
                activations = kept.num_bytes
                self._is_backward = True
                if not (sums := _sums_with_gradient(found)):
                    return None, None
                torch.stack([one.float() for one in sums]).sum().backward()
            return activations, counter.get_total_flops()
        return None, None

    def _note(self, kind: Kind, flops: int) -> None:
        """Backward itself computes without gradients; what it computes with them is a forward pass again."""
        self.flops[kind] += flops
        if self._is_backward and torch.is_grad_enabled():
            self.recomputed[kind] += flops

    def _faked(self, value: Any) -> Any:
        return self._mode.from_tensor(value) if isinstance(value, Tensor) else value


def _sums_with_gradient(found: object) -> list[Tensor]:
    """Sums of the tensors in an output that have a gradient.

    A function of its own, for CPython 3.12 and 3.13 leave the jump back of such loops out of a `with` around
    it: after what a signal handler raises there, all later tensors would be without values, too.
    """
    outputs = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
    return [output.sum() for output in outputs if output.requires_grad]


def num_samples(inputs: Sequence[Any], named: Mapping[str, Any]) -> int:
    """The first dimension of the first tensor that a model is given; 1 where it is given none."""
    tensors = (leaf for leaf in tree_leaves((tuple(inputs), dict(named))) if isinstance(leaf, Tensor))
    return next((len(tensor) for tensor in tensors if tensor.ndim), 1)


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


def _storage(tensor: Tensor) -> int:
    """Which storage it is as long as it lives; tensors without values have no address."""
    return int(tensor.untyped_storage()._cdata)


def _flop_counter(note: Callable[[Kind, int], None]) -> FlopCounterMode:
    """Counts the fused attention of the CPU too, which torch's counter does not know by itself.

    Calls `note` with the kind and FLOPs of each operation.
    """
    from torch.utils import flop_counter  # here: every training imports this module

    def forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(flop_counter.sdpa_flop_count(query, key, value))

    def backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(flop_counter.sdpa_backward_flop_count(gradient, query, key, value))

    def noted(operation: Any, count: Callable[..., int]) -> Callable[..., int]:
        is_convolution = "convolution" in str(operation)

        def counted(*given: Any, **named: Any) -> int:
            flops = count(*given, **named)
            note(Kind(is_convolution, _dtype(given)), flops)
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
    mapping = {operation: noted(operation, count) for operation, count in known.items()}
    return flop_counter.FlopCounterMode(display=False, custom_mapping=mapping)


def _dtype(given: Sequence[Any]) -> torch.dtype | None:
    of_tensors = (value.dtype for value in given if isinstance(value, Tensor))
    return next((dtype for dtype in of_tensors if dtype.is_floating_point), None)
