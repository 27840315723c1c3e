"""Parts of the modern model with their derivatives written out, for CPUs.

Torch has no kernel of these for a CPU: it composes them of small operations, and autograd of more for the
backward pass. GPUs and torch.compile have fused ones and get torch's own form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def rms_norm(x: Tensor) -> Tensor:
    """F.rms_norm over the last dimension, without weights."""
    if _composed_by_torch(x):
        normed: Tensor = _RmsNorm.apply(x)  # type: ignore[no-untyped-call]
        return normed
    return F.rms_norm(x, (x.shape[-1],))


def squared_relu(x: Tensor) -> Tensor:
    """F.relu(x), squared."""
    if _composed_by_torch(x):
        squared: Tensor = _SquaredRelu.apply(x)  # type: ignore[no-untyped-call]
        return squared
    return F.relu(x).square()


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """The heads (n, heads, t, features), the first half of the features turned against the second.

    `turns` are the cosines and sines (2, t, half of the features).
    """
    cos, sin = turns.to(x.dtype)
    if _composed_by_torch(x):
        result: Tensor = _Turned.apply(x, cos, sin)  # type: ignore[no-untyped-call]
        return result
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos + second * sin, second * cos - first * sin], -1)


def mixed(x: Tensor, first: Tensor, weights: Tensor) -> Tensor:
    """weights[0] x + weights[1] first."""
    if _composed_by_torch(x):
        mixture: Tensor = _Mixed.apply(x, first, weights)  # type: ignore[no-untyped-call]
        return mixture
    return weights[0] * x + weights[1] * first


def bf16_product(x: Tensor, weight: Tensor) -> Tensor:
    """F.linear(x, weight), whose product and those of its derivatives take float32 in bfloat16.

    For CPUs, where attention takes twice the time under torch.autocast, and what is between linear layers
    gains nothing. Sums are float32; a CPU without instructions for bfloat16 computes all in float32.
    """
    product: Tensor = _Bf16Product.apply(x, weight)  # type: ignore[no-untyped-call]
    return product


def _composed_by_torch(x: Tensor) -> bool:
    exact = x.dtype in (torch.float32, torch.float64)
    return exact and x.device.type == "cpu" and not torch.compiler.is_compiling()


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = norms.square_().div_(x.shape[-1]).add_(torch.finfo(x.dtype).eps).rsqrt_()
        y: Tensor = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        y, scale = ctx.saved_tensors
        along: Tensor = (gradient * y).sum(-1, keepdim=True).div_(y.shape[-1])  # a third of mean's time
        return torch.addcmul(gradient, y, along, value=-1).mul_(scale)


class _SquaredRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        doubled: Tensor = (gradient * positive).mul_(2)
        return doubled


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(gradient, cos, -sin), None, None


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, first: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, first, weights)
        own, other = weights.tolist()
        mixture: Tensor = (x * own).add_(first, alpha=other)
        return mixture

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, first, weights = ctx.saved_tensors
        own, other = weights.tolist()
        flat = gradient.reshape(-1)
        of_weights = torch.stack([torch.dot(flat, x.reshape(-1)), torch.dot(flat, first.reshape(-1))])
        return gradient * own, gradient * other, of_weights


class _Bf16Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with _bf16_products():
            product: Tensor = F.linear(x, weight)
        return product

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        with _bf16_products():
            return gradient @ weight, gradient.flatten(0, -2).T @ x.flatten(0, -2)


@contextmanager
def _bf16_products() -> Iterator[None]:
    """Torch's setting is that of the process: for all of a training it would also slow attention down."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty_like(x)
    (first, second), (left, right) = x.chunk(2, -1), out.chunk(2, -1)
    torch.mul(first, cos, out=left).addcmul_(second, sin)
    torch.mul(second, cos, out=right).addcmul_(first, sin, value=-1)
    return out
