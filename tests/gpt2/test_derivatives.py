"""The written-out derivatives: those of torch's own form, and of finite differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt2.derivatives import bf16_product, mixed, rms_norm, squared_relu, turned

TURNS = torch.rand(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def rotated(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    cos, sin = TURNS.to(x.dtype)
    return torch.cat([first * cos + second * sin, second * cos - first * sin], -1)


FORMS = {
    "mixed": (
        lambda x: mixed(x, x.cos(), x[0, 0, 0, :2]),
        lambda x: x[0, 0, 0, 0] * x + x[0, 0, 0, 1] * x.cos(),
    ),
    "rms_norm": (rms_norm, lambda x: F.rms_norm(x, (x.shape[-1],))),
    "squared_relu": (squared_relu, lambda x: F.relu(x).square()),
    "turned": (lambda x: turned(x, TURNS), rotated),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients_are_those_of_torchs_own_form(name: str, dtype: torch.dtype) -> None:
    """Forms are compared on attention heads, which are a transposed part of a larger tensor."""
    found: list[tuple[Tensor, Tensor]] = []
    for form in FORMS[name]:
        held = torch.randn(
            2, 5, 4, 6, dtype=dtype, generator=torch.Generator().manual_seed(2), requires_grad=True
        )
        result = form(held[:, :, 1:].transpose(1, 2))
        (result * result.detach().cos()).sum().backward()
        assert held.grad is not None
        found.append((result.detach(), held.grad))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("form", [FORMS["mixed"][0], rms_norm, squared_relu, lambda x: turned(x, TURNS)])
def test_gradients_are_those_of_finite_differences(form: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(
        1, 2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True
    )
    assert torch.autograd.gradcheck(form, (x,))


def test_bfloat16_and_the_meta_device_have_torchs_own_form() -> None:
    x = torch.randn(1, 2, 5, 6).bfloat16()
    assert torch.equal(turned(x, TURNS), rotated(x))
    assert rms_norm(x).dtype == mixed(x, x, torch.ones(2).bfloat16()).dtype == torch.bfloat16
    assert squared_relu(x.to("meta")).shape == x.shape


def test_products_in_bfloat16_are_those_of_float32_but_for_rounding() -> None:
    """Theirs and their derivatives'; what is around them keeps torch's setting."""
    generator = torch.Generator().manual_seed(4)
    held = [torch.randn(shape, generator=generator) for shape in ((3, 64, 96), (128, 96), (3, 64, 128))]
    found: list[list[Tensor]] = []
    for form in (bf16_product, F.linear):
        x, weight = (one.clone().requires_grad_() for one in held[:2])
        result = form(x, weight)
        result.backward(held[2])
        assert x.grad is not None
        assert weight.grad is not None
        found.append([result.detach(), x.grad, weight.grad])
    for ours, exact in zip(*found, strict=True):
        assert ours.dtype == torch.float32
        assert ours.shape == exact.shape
        assert float((ours - exact).norm() / exact.norm()) < 2**-7
    assert torch.get_float32_matmul_precision() == "highest"
