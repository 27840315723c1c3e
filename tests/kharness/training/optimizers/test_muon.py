"""Muon: which parameters it trains, and its step against the singular values of the momentum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from kharness.training.optimizers import build_optimizer, muon
from kharness.training.schedules import set_learning_rate
from lenet5.model import LeNet5

SYMBOLS: dict[str, Any] = {
    "LEARNING_RATE": 0.02,
    "WEIGHT_DECAY": 0.1,
    "OPTIMIZER_MUON_MOMENTUM": 0.95,
    "OPTIMIZER_MUON_NESTEROV": True,
    "OPTIMIZER_MUON_MATCH_ADAMW": False,
    "OPTIMIZER_MUON_ADAMW_RATE": 0.005,
    "OPTIMIZER_MUON_ADAMW_BETAS": [0.9, 0.99],
    "OPTIMIZER_MUON_ADAMW_EPS": 1e-8,
}


class Tied(nn.Module):
    """A head that shares its weight with the embedding, after layers that Muon trains."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.hidden = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.hidden(self.embedding(x)))
        return y


def groups(model: nn.Module) -> list[tuple[list[str], float, float]]:
    described = build_optimizer("muon", model, SYMBOLS)[1]["groups"]
    return [(one["names"], one["weight_decay"], one["learning_rate"]) for one in described]


def test_hidden_matrices_are_muons_and_the_rest_is_adamws() -> None:
    biases = ["conv1.bias", "conv2.bias", "fc1.bias", "fc2.bias", "fc3.bias"]
    assert groups(LeNet5()) == [
        (["fc1.weight", "fc2.weight"], 0.1, 0.02),
        (["conv1.weight", "conv2.weight", "fc3.weight"], 0.1, 0.005),
        (biases, 0.0, 0.005),
    ]
    assert groups(Tied()) == [
        (["hidden.weight"], 0.1, 0.02),
        (["embedding.weight"], 0.1, 0.005),
        (["hidden.bias"], 0.0, 0.005),
    ]


def test_model_without_hidden_matrices_is_adamws() -> None:
    assert groups(nn.Linear(3, 2)) == [(["weight"], 0.1, 0.005), (["bias"], 0.0, 0.005)]


def test_schedule_moves_both_rates_alike() -> None:
    optimizer, _ = build_optimizer("muon", LeNet5(), SYMBOLS)
    set_learning_rate(optimizer, 0.01)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.0025, 0.0025]
    optimizer.load_state_dict(optimizer.state_dict())
    set_learning_rate(optimizer, 0.004)
    assert [group["lr"] for part in optimizer._parts for group in part.param_groups] == [0.004, 0.001, 0.001]  # type: ignore[attr-defined]


def test_step_of_a_hidden_matrix_is_jordans() -> None:
    """Its singular values go five times through 3.4445 s - 4.775 s^3 + 2.0315 s^5, in bfloat16."""
    given = torch.randn(3, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    start = torch.ones(4, 3, dtype=torch.float64)

    class Between(nn.Sequential):
        """The matrix is no last layer."""

        def __init__(self, weight: Tensor) -> None:
            super().__init__(nn.Linear(3, 4, bias=False), nn.Linear(4, 1, bias=False))
            self.weight = nn.Parameter(weight.clone())

    model = Between(start)
    options = muon.Options(
        learning_rate=0.1,
        momentum=0.9,
        nesterov=True,
        match_adamw=False,
        adamw_rate=0.1,
        adamw_betas=(0.9, 0.99),
        adamw_eps=1e-8,
        weight_decay=0.2,
    )
    optimizer = muon.build(model, options)
    weight, momentum = start, torch.zeros(4, 3, dtype=torch.float64)
    for gradient in given:
        model.weight.grad = gradient.clone()
        optimizer.step()
        momentum = 0.9 * momentum + 0.1 * gradient
        u, s, v = torch.linalg.svd(0.1 * gradient + 0.9 * momentum, full_matrices=False)
        s = s / s.norm()
        for _ in range(5):
            s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
        # 4 rows by 3 columns: the update is scaled by sqrt(4 / 3)
        weight = weight * (1 - 0.1 * 0.2) - 0.1 * (4 / 3) ** 0.5 * (u * s) @ v
        torch.testing.assert_close(model.weight.detach(), weight, rtol=0, atol=0.1 * 0.03)
        weight = model.weight.detach().clone()
