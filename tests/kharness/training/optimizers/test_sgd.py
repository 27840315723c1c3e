"""SGD against Sutskever et al. 2013 worked by hand, and against torch's plain loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kharness.training.errors import TrainingError
from kharness.training.optimizers import OPTIMIZERS, build_optimizer, sgd

RATE, MOMENTUM = 0.1, 0.9


class Scalar(nn.Module):
    """One weight, a matrix so that it decays."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, 1), value, dtype=torch.float64))


def gradient(weight: float) -> float:
    """Gradient of weight**4 / 4, which is not linear, so that a look-ahead matters."""
    return weight**3


def descend(model: Scalar, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        (model.weight**4 / 4).sum().backward()
        optimizer.step()
        path.append(model.weight.item())
    return path


def options(*, momentum: float = MOMENTUM, nesterov: bool = True, weight_decay: float = 0.0) -> sgd.Options:
    return sgd.Options(learning_rate=RATE, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)


def test_nesterov_is_the_papers() -> None:
    """Equations 3 and 4: v' = m v - e f'(w + m v), w' = w + v'. torch's weight is the paper's w + m v."""
    paper, weight, velocity = [], 1.0, 0.0
    for _ in range(6):
        velocity = MOMENTUM * velocity - RATE * gradient(weight + MOMENTUM * velocity)
        weight += velocity
        paper.append(weight + MOMENTUM * velocity)
    model = Scalar(1.0)
    assert descend(model, sgd.build(model, options()), 6) == pytest.approx(paper, rel=1e-12)


def test_momentum_and_decay_by_hand() -> None:
    """g = w**3 + decay w; buffer = m buffer + g; w -= rate buffer, from w = 1 with decay 0.5.

    Step 1: g 1.5, buffer 1.5, w 0.85. Step 2: g 0.614125 + 0.425 = 1.039125, buffer 2.389125, w 0.6110875.
    """
    model = Scalar(1.0)
    path = descend(model, sgd.build(model, options(nesterov=False, weight_decay=0.5)), 2)
    assert path == pytest.approx([0.85, 0.6110875], rel=1e-12)


def test_fused_kernel_agrees_with_torchs_plain_loop() -> None:
    torch.manual_seed(0)
    ours, plain = (nn.Linear(5, 3).double() for _ in range(2))
    plain.load_state_dict(ours.state_dict())
    built = sgd.build(ours, options(weight_decay=0.01))
    groups = [{"params": [plain.weight], "weight_decay": 0.01}, {"params": [plain.bias], "weight_decay": 0.0}]
    oracle = torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, nesterov=True, foreach=False, fused=False)
    for _ in range(10):
        batch = torch.randn(4, 5, dtype=torch.float64)
        for model, optimizer in ((ours, built), (plain, oracle)):
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            optimizer.step()
    assert torch.allclose(ours.weight, plain.weight, rtol=1e-12, atol=0)
    assert torch.allclose(ours.bias, plain.bias, rtol=1e-12, atol=0)


def test_nesterov_without_momentum_is_refused() -> None:
    with pytest.raises(TrainingError) as caught:
        options(momentum=0.0)
    assert str(caught.value) == "OPTIMIZER_SGD_NESTEROV=y needs OPTIMIZER_SGD_MOMENTUM above 0"
    assert caught.value.hint == "set OPTIMIZER_SGD_NESTEROV=n for plain SGD"


def test_build_reads_the_symbols() -> None:
    symbols = {
        "LEARNING_RATE": 0.2,
        "WEIGHT_DECAY": 0.01,
        "OPTIMIZER_SGD_MOMENTUM": 0.5,
        "OPTIMIZER_SGD_NESTEROV": False,
    }
    optimizer, described = build_optimizer("sgd", Scalar(1.0), symbols)
    assert described == {
        "name": "sgd",
        "learning_rate": 0.2,
        "momentum": 0.5,
        "nesterov": False,
        "weight_decay": 0.01,
        "groups": [{"names": ["weight"], "count": 1, "weight_decay": 0.01, "learning_rate": 0.2}],
    }
    assert isinstance(optimizer, torch.optim.SGD)
    group = optimizer.param_groups[0]
    assert [group[key] for key in ("lr", "momentum", "nesterov", "weight_decay")] == [0.2, 0.5, False, 0.01]


def test_unknown_optimizer_lists_the_known() -> None:
    with pytest.raises(TrainingError, match="unknown optimizer 'tiger'") as caught:
        build_optimizer("tiger", Scalar(1.0), {})
    assert caught.value.hint == f"known optimizers: {', '.join(OPTIMIZERS.names)}"
