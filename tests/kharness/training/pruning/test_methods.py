"""Masks against torch.nn.utils.prune, the schedule against Zhu and Gupta 2017 by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from kharness.training.errors import TrainingError
from kharness.training.pruning import PRUNING_METHODS, Pruner, Pruning, build_pruner
from kharness.training.pruning._options import SparsitySchedule

Layer = nn.Conv2d | nn.Linear


def network() -> nn.Sequential:
    """Layers whose weights differ in size, so that a common threshold prunes them differently."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 10))
    with torch.no_grad():
        layers(model)[1].weight.mul_(0.3)
    return model


def layers(model: nn.Sequential) -> tuple[Layer, Layer]:
    """Those that are pruned."""
    first, last = model[0], model[3]
    assert isinstance(first, nn.Conv2d)
    assert isinstance(last, nn.Linear)
    return first, last


def pruner(
    name: str, model: nn.Module, optimizer: torch.optim.Optimizer, *, num_steps: int = 10, **symbols: object
) -> Pruning:
    values = {
        "OPTIMIZER": "adamw",
        "PRUNING_SPARSITY": 0.5,
        "PRUNING_START_FRACTION": 0.0,
        "PRUNING_END_FRACTION": 1.0,
        "PRUNING_EVERY": 1,
        "PRUNING_GLOBAL": True,
        "PRUNING_STATE_VARIANT": "bitter0",
        **symbols,
    }
    return build_pruner(name, model, optimizer, values, num_steps=num_steps)


def at_once(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, **symbols: object) -> Pruning:
    """In the first of ten steps."""
    fractions = {"PRUNING_START_FRACTION": 0.1, "PRUNING_END_FRACTION": 0.1}
    return pruner(name, model, optimizer, num_steps=10, **fractions, **symbols)


def zeros(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter == 0 for name, parameter in model.named_parameters() if parameter.ndim > 1}


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 1, 4, 4)).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.77])
def test_magnitude_across_layers_is_torchs(sparsity: float) -> None:
    ours, oracle = network(), network()
    optimizer = torch.optim.SGD(ours.parameters())
    at_once("magnitude", ours, optimizer, PRUNING_SPARSITY=sparsity).after_step(1)
    weights = [(layer, "weight") for layer in layers(oracle)]
    prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=sparsity)
    for layer, other in zip(layers(ours), layers(oracle), strict=True):
        assert torch.equal(layer.weight, other.weight)
    assert zeros(ours)["3.weight"].sum() > zeros(ours)["0.weight"].sum() * 5


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.77])
def test_magnitude_a_layer_is_torchs(sparsity: float) -> None:
    ours, oracle = network(), network()
    optimizer = torch.optim.SGD(ours.parameters())
    at_once("magnitude", ours, optimizer, PRUNING_SPARSITY=sparsity, PRUNING_GLOBAL=False).after_step(1)
    for layer, other in zip(layers(ours), layers(oracle), strict=True):
        prune.l1_unstructured(other, "weight", amount=sparsity)
        assert torch.equal(layer.weight, other.weight)


def test_random_prunes_the_share_and_the_seed_decides_which() -> None:
    found = []
    for seed in (1, 1, 2):
        model = network()
        method = at_once("random", model, torch.optim.SGD(model.parameters()), PRUNING_GLOBAL=False)
        torch.manual_seed(seed)
        method.after_step(1)
        found.append(zeros(model))
    assert [int(mask.sum()) for mask in found[0].values()] == [18, 80]
    assert torch.equal(found[0]["3.weight"], found[1]["3.weight"])
    assert not torch.equal(found[0]["3.weight"], found[2]["3.weight"])


@pytest.mark.parametrize(
    ("optimizer_class", "options", "mean"),
    [
        (torch.optim.AdamW, {}, "exp_avg"),
        (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}, "momentum_buffer"),
    ],
)
def test_taylor_prunes_what_changes_the_loss_least(
    optimizer_class: Any, options: dict[str, float], mean: str
) -> None:
    """torch's importance_scores prunes by any score; here by the paper's (g w)^2."""
    model = network()
    optimizer = optimizer_class(model.parameters(), **options)
    step(model, optimizer)
    importance = [
        (layer.weight * optimizer.state[layer.weight][mean]).double().square() for layer in layers(model)
    ]
    kept = [layer.weight.detach().clone() for layer in layers(model)]
    at_once("taylor", model, optimizer, PRUNING_SPARSITY=0.4).after_step(1)
    oracle = [(layer, "weight") for layer in layers(network())]
    prune.global_unstructured(
        oracle,
        pruning_method=prune.L1Unstructured,
        importance_scores=dict(zip(oracle, importance, strict=True)),
        amount=0.4,
    )
    for layer, (other, _), before in zip(layers(model), oracle, kept, strict=True):
        assert torch.equal(layer.weight, before * other.get_buffer("weight_mask"))


def test_schedule_is_zhu_and_guptas() -> None:
    """s = f (1 - (1 - (t - t0) / (t1 - t0))^3) from 20 to 60: a quarter of the way is 1 - 27/64 of it."""
    schedule = SparsitySchedule(final=0.8, first_step=20, last_step=60, every=10)
    due = [step for step in range(1, 101) if schedule.is_due(step)]
    assert due == [20, 30, 40, 50, 60]
    by_hand = [0.0, 0.8 * 37 / 64, 0.8 * 7 / 8, 0.8 * 63 / 64, 0.8]
    assert [schedule(step) for step in due] == pytest.approx(by_hand, rel=1e-12)
    assert (schedule(1), schedule(100)) == (0.0, 0.8)


def test_schedule_reaches_its_end_between_two_prunings() -> None:
    schedule = SparsitySchedule(final=0.9, first_step=1, last_step=12, every=5)
    assert [step for step in range(1, 20) if schedule.is_due(step)] == [1, 6, 11, 12]


def test_sparsity_follows_the_schedule_and_only_weights_are_pruned() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=True)
    method = pruner("magnitude", model, optimizer, num_steps=20, PRUNING_SPARSITY=0.9, PRUNING_EVERY=5)
    measured, masks = [], []
    for number in range(1, 26):
        step(model, optimizer)
        method.after_step(number)
        masks.append(zeros(model))
        measured.append(method.measured()["sparsity"])
    # 36 + 160 weights; after 5, 10, 15 and 20 of 20 steps, rounded to whole weights.
    counts = [round(0.9 * (1 - (1 - t / 20) ** 3) * 196) / 196 for t in (0, 5, 10, 15, 20)]
    assert measured == [*[0.0] * 4, *[counts[1]] * 5, *[counts[2]] * 5, *[counts[3]] * 5, *[counts[4]] * 6]
    for before, after in itertools.pairwise(masks):
        assert all(bool((before[name] <= after[name]).all()) for name in before)
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    assert all(bool((vector != 0).all()) for vector in vectors)


@pytest.mark.parametrize("name", PRUNING_METHODS.names)
def test_every_method_reaches_its_sparsity_in_the_shortest_training(name: str) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    method = pruner(name, model, optimizer, num_steps=1, PRUNING_END_FRACTION=0.3)
    step(model, optimizer)
    method.after_step(1)
    assert method.measured() == {"sparsity": 0.5}


def test_pruning_leaves_the_optimizer_state_as_it_is() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = pruner("magnitude", model, optimizer)
    step(model, optimizer)
    before = repr(optimizer.state_dict())
    method.after_step(1)
    assert repr(optimizer.state_dict()) == before


def test_no_pruning_does_and_records_nothing() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    nothing = build_pruner("none", model, torch.optim.SGD(model.parameters()), {}, num_steps=3)
    nothing.after_step(3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (nothing.measured(), nothing.state_dict(), nothing.described) == ({}, {}, None)


def test_described_names_method_and_options() -> None:
    model = network()
    method = pruner("random", model, torch.optim.SGD(model.parameters()))
    assert isinstance(method, Pruner)
    assert method.described == {
        "name": "random",
        "sparsity": 0.5,
        "start_fraction": 0.0,
        "end_fraction": 1.0,
        "every": 1,
        "whole_model": True,
        "sparsity_schedule": "cubic",
    }


@pytest.mark.parametrize(
    ("name", "symbols", "message"),
    [
        ("optimal", {}, "unknown pruning method 'optimal'"),
        (
            "magnitude",
            {"PRUNING_START_FRACTION": 0.9, "PRUNING_END_FRACTION": 0.2},
            "PRUNING_START_FRACTION=0.9 comes after PRUNING_END_FRACTION=0.2",
        ),
        (
            "taylor",
            {"OPTIMIZER": "sgd", "OPTIMIZER_SGD_MOMENTUM": 0.0},
            "PRUNING=taylor needs OPTIMIZER_SGD_MOMENTUM above 0",
        ),
    ],
)
def test_what_cannot_prune_is_refused_before_training(
    name: str, symbols: dict[str, Any], message: str
) -> None:
    model = network()
    with pytest.raises(TrainingError, match=message):
        pruner(name, model, torch.optim.SGD(model.parameters()), **symbols)
