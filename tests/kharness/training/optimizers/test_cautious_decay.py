"""Cautious weight decay, against steps worked by hand from algorithm 1 of arXiv 2510.12402."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kharness.config.errors import ConfigError
from kharness.config.options import parse
from kharness.training.optimizers import build_optimizer
from kharness.training.optimizers._before_step import decay_cautiously

SYMBOLS: dict[str, Any] = {
    "LEARNING_RATE": 0.1,
    "WEIGHT_DECAY": 0.5,
    "WEIGHT_DECAY_CAUTIOUS": True,
    "OPTIMIZER_ADAMW_BETAS": [0.9, 0.99],
    "OPTIMIZER_ADAMW_EPS": 0.0,
    "OPTIMIZER_MUON_MOMENTUM": 0.9,
    "OPTIMIZER_MUON_BF16": False,
    "OPTIMIZER_MUON_NESTEROV": True,
    "OPTIMIZER_MUON_MATCH_ADAMW": False,
    "OPTIMIZER_MUON_ADAMW_RATE": 0.01,
    "OPTIMIZER_MUON_ADAMW_BETAS": [0.9, 0.99],
    "OPTIMIZER_MUON_ADAMW_EPS": 1e-8,
}


class Layers(nn.Sequential):
    """A hidden matrix, which Muon trains, and a head."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 3, bias=False), nn.Linear(3, 2))
        self.double()


def test_only_what_the_update_shrinks_decays() -> None:
    """AdamW's first update is the gradient's sign: subtracted, it shrinks weights of the same sign."""
    model = nn.Linear(2, 2, bias=False).double()
    model.weight.data = torch.tensor([[2.0, 2.0], [-2.0, -2.0]], dtype=torch.float64)
    optimizer, _ = build_optimizer("adamw", model, SYMBOLS)
    model.weight.grad = torch.tensor([[3.0, -3.0], [3.0, -3.0]], dtype=torch.float64)
    optimizer.step()
    # 0.1 of the update, and 0.1 x 0.5 of the weight where both have one sign
    expected = torch.tensor([[2 - 0.1 - 0.1, 2 + 0.1], [-2 - 0.1, -2 + 0.1 + 0.1]], dtype=torch.float64)
    torch.testing.assert_close(model.weight.detach(), expected, rtol=0, atol=1e-12)
    assert optimizer.param_groups[0]["weight_decay"] == 0.5


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_each_step_is_the_update_without_decay_and_the_masked_decay(name: str) -> None:
    """x - rate (u + decay [u x >= 0] x), over several steps of a rate that changes; biases do not decay."""
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    model = Layers()
    plain = copy.deepcopy(model)
    optimizer, _ = build_optimizer(name, model, SYMBOLS)
    undecayed, _ = build_optimizer(
        name, plain, {**SYMBOLS, "WEIGHT_DECAY": 0.0, "WEIGHT_DECAY_CAUTIOUS": False}
    )
    masked = 0
    for rate in (1.0, 0.5, 0.25):
        starts = [weight.detach().clone() for weight in model.parameters()]
        for own, other, start in zip(model.parameters(), plain.parameters(), starts, strict=True):
            own.grad = torch.randn(own.shape, dtype=torch.float64, generator=generator)
            other.grad = own.grad.clone()
            other.data.copy_(start)
        for one in (optimizer, undecayed):
            for group in one.param_groups:
                group["lr"] *= rate
            one.step()
        rates = {id(w): group["lr"] for group in optimizer.param_groups for w in group["params"]}
        for own, other, start in zip(model.parameters(), plain.parameters(), starts, strict=True):
            update = start - other.detach()
            shrunk = start.where(update * start >= 0, 0.0) if own.ndim == 2 else 0 * start
            masked += int((shrunk == 0).sum()) if own.ndim == 2 else 0
            decay = 0.5 * rates[id(own)] * shrunk
            torch.testing.assert_close(own.detach(), other.detach() - decay, rtol=0, atol=1e-12)
    assert 0 < masked < 3 * 18


def test_weights_without_a_gradient_stay_as_they_are() -> None:
    model = nn.Linear(2, 2, bias=False)
    before = model.weight.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.5)
    decay_cautiously(optimizer)
    optimizer.step()
    assert torch.equal(model.weight.detach(), before)


def test_the_record_names_it_and_other_optimizers_refuse_it(root: Path) -> None:
    def recorded(name: str, **more: object) -> object:
        return build_optimizer(name, Layers(), {**SYMBOLS, **more})[1].get("cautious_decay")

    assert recorded("adamw") is recorded("muon") is True
    assert recorded("adamw", WEIGHT_DECAY_CAUTIOUS=False) is None
    with pytest.raises(ConfigError, match="WEIGHT_DECAY_CAUTIOUS"):
        parse(
            ["--optimizer", "sgd", "--weight-decay-cautious"],
            root=root,
            model="gpt2",
            prog="",
            description="",
        )
