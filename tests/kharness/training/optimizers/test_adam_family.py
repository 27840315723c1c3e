"""Adam and AdamW against the algorithms of their papers, and against torch's plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import nn

from kharness.training.optimizers import adam, adamw, build_optimizer

RATE, FIRST, SECOND, EPS, DECAY = 0.1, 0.9, 0.99, 1e-8, 0.1
GRADIENTS = [1.0, -3.0, 0.5, 2.0, 0.0]


def kingma_ba_2015(weight: float, gradients: list[float], decay: float) -> list[float]:
    """Algorithm 1, with L2 decay added to the gradient."""
    m = v = 0.0
    path = []
    for t, g in enumerate(gradients, start=1):
        g += decay * weight
        m = FIRST * m + (1 - FIRST) * g
        v = SECOND * v + (1 - SECOND) * g * g
        weight -= RATE * (m / (1 - FIRST**t)) / (math.sqrt(v / (1 - SECOND**t)) + EPS)
        path.append(weight)
    return path


def loshchilov_hutter_2019(weight: float, gradients: list[float], decay: float) -> list[float]:
    """Algorithm 2, the decay decoupled, scaled by the learning rate as torch has it."""
    m = v = 0.0
    path = []
    for t, g in enumerate(gradients, start=1):
        m = FIRST * m + (1 - FIRST) * g
        v = SECOND * v + (1 - SECOND) * g * g
        step = (m / (1 - FIRST**t)) / (math.sqrt(v / (1 - SECOND**t)) + EPS)
        weight -= RATE * (step + decay * weight)
        path.append(weight)
    return path


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((1, 1), dtype=torch.float64))


def options(module: ModuleType) -> object:
    return module.Options(learning_rate=RATE, betas=(FIRST, SECOND), eps=EPS, weight_decay=DECAY)


Paper = Callable[[float, list[float], float], list[float]]


@pytest.mark.parametrize(("module", "paper"), [(adam, kingma_ba_2015), (adamw, loshchilov_hutter_2019)])
def test_steps_are_the_papers(module: ModuleType, paper: Paper) -> None:
    model = Scalar()
    optimizer = module.build(model, options(module))
    path = []
    for gradient in GRADIENTS:
        model.weight.grad = torch.full_like(model.weight, gradient)
        optimizer.step()
        path.append(model.weight.item())
    assert path == pytest.approx(paper(1.0, GRADIENTS, DECAY), rel=1e-12)


def test_first_step_by_hand() -> None:
    """After one step the moments are the gradient and its square, so the step is the learning rate.

    From weight 1 with gradient 1: Adam 1 - 0.1 = 0.9; AdamW 1 - 0.1 (1 + 0.1) = 0.89.
    """
    for module, expected in ((adam, 0.9), (adamw, 0.89)):
        model = Scalar()
        optimizer = module.build(model, options(module))
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
        assert model.weight.item() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(("module", "oracle_class"), [(adam, torch.optim.Adam), (adamw, torch.optim.AdamW)])
def test_fused_kernel_agrees_with_torchs_plain_loop(
    module: ModuleType, oracle_class: type[torch.optim.Adam]
) -> None:
    torch.manual_seed(0)
    ours, plain = (nn.Linear(5, 3).double() for _ in range(2))
    plain.load_state_dict(ours.state_dict())
    built = module.build(ours, options(module))
    groups = [
        {"params": [plain.weight], "weight_decay": DECAY},
        {"params": [plain.bias], "weight_decay": 0.0},
    ]
    oracle = oracle_class(groups, lr=RATE, betas=(FIRST, SECOND), eps=EPS, foreach=False, fused=False)
    for _ in range(10):
        batch = torch.randn(4, 5, dtype=torch.float64)
        for model, optimizer in ((ours, built), (plain, oracle)):
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            optimizer.step()
    assert torch.allclose(ours.weight, plain.weight, rtol=1e-10, atol=0)
    assert torch.allclose(ours.bias, plain.bias, rtol=1e-10, atol=0)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_build_reads_the_symbols(name: str) -> None:
    symbols = {
        "LEARNING_RATE": 0.2,
        "WEIGHT_DECAY": 0.01,
        f"OPTIMIZER_{name.upper()}_BETAS": [0.8, 0.95],
        f"OPTIMIZER_{name.upper()}_EPS": 1e-6,
    }
    optimizer, described = build_optimizer(name, Scalar(), symbols)
    assert described == {
        "name": name,
        "learning_rate": 0.2,
        "betas": (0.8, 0.95),
        "eps": 1e-6,
        "weight_decay": 0.01,
        "groups": [{"names": ["weight"], "count": 1, "weight_decay": 0.01, "learning_rate": 0.2}],
    }
    group = optimizer.param_groups[0]
    assert [group[key] for key in ("lr", "betas", "eps", "weight_decay")] == [0.2, (0.8, 0.95), 1e-6, 0.01]
