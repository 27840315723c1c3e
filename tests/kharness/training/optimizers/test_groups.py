"""Parameter groups decide which weights decay; the record names them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kharness.training.optimizers import build_optimizer
from lenet5.model import LeNet5

SYMBOLS: dict[str, Any] = {
    "LEARNING_RATE": 0.2,
    "WEIGHT_DECAY": 0.5,
    "OPTIMIZER_ADAMW_BETAS": [0.8, 0.95],
    "OPTIMIZER_ADAMW_EPS": 1e-6,
}


class EveryKind(nn.Module):
    """A parameter of each kind, one of them under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.attention = nn.MultiheadAttention(4, 2, add_bias_kv=True)
        self.pictures = nn.LayerNorm([3, 4, 4])
        self.batch = nn.BatchNorm2d(3)
        self.scale = nn.Parameter(torch.ones(()))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return x


def groups(model: nn.Module, **more: object) -> list[dict[str, Any]]:
    described = build_optimizer("adamw", model, {**SYMBOLS, **more})[1]
    found: list[dict[str, Any]] = described["groups"]
    return found


def test_biases_norms_and_vectors_do_not_decay() -> None:
    weights, others = groups(EveryKind())
    assert weights == {
        "names": ["embedding.weight", "attention.in_proj_weight", "attention.out_proj.weight"],
        "count": 20 + 48 + 16,
        "weight_decay": 0.5,
        "learning_rate": 0.2,
    }
    assert others == {
        "names": [
            *("scale", "attention.in_proj_bias", "attention.bias_k", "attention.bias_v"),
            *("attention.out_proj.bias", "pictures.weight", "pictures.bias", "batch.weight", "batch.bias"),
        ],
        "count": 1 + 12 + 4 + 4 + 4 + 48 + 48 + 3 + 3,
        "weight_decay": 0.0,
        "learning_rate": 0.2,
    }


def test_all_decay_where_that_is_requested() -> None:
    assert [group["weight_decay"] for group in groups(EveryKind(), WEIGHT_DECAY_ALL=True)] == [0.5, 0.5]


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_groups_of_lenet5_are_its_weights_and_its_biases(name: str) -> None:
    """The very groups, in the order, that earlier versions had: results stay equal to the last bit."""
    model = LeNet5()
    symbols = {
        **SYMBOLS,
        "OPTIMIZER_ADAM_BETAS": [0.8, 0.95],
        "OPTIMIZER_ADAM_EPS": 1e-6,
        "OPTIMIZER_SGD_MOMENTUM": 0.9,
        "OPTIMIZER_SGD_NESTEROV": True,
    }
    optimizer, _ = build_optimizer(name, model, symbols)
    parameters = list(model.parameters())
    found = [[id(parameter) for parameter in group["params"]] for group in optimizer.param_groups]
    assert found == [[id(p) for p in parameters if p.ndim > 1], [id(p) for p in parameters if p.ndim == 1]]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]


def test_groups_have_one_owner(root: Path) -> None:
    """No other module decides what decays, and every optimizer takes these groups."""
    folder = root / "lib/kharness/training/optimizers"
    modules = [path for top in ("lib", "gpt2", "lenet5", "resnet50") for path in (root / top).rglob("*.py")]
    second = [
        path
        for path in modules
        if re.search(r"[\"']weight_decay[\"']\s*:|\.ndim\s*<=?\s*[12]\b", path.read_text())
    ]
    assert second == [folder / "__init__.py"], "use kharness.training.optimizers.parameter_groups"
    taken = ("parameter_groups(", "adamw.build(")
    builders = [
        path for path in folder.glob("[a-z]*.py") if not any(call in path.read_text() for call in taken)
    ]
    assert builders == []
