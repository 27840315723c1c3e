"""Activation statistics and the entropy of attention: by hand, and without a trace in what is trained."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpt2.model import GPT2, Shape
from lenet5.model import LeNet5
from monitoring.telemetry.activations import ActivationStatistics, attention_entropy, layers, statistics

SMALL = Shape(vocabulary=64, block_size=8, layers=2, heads=2, width=16, dropout=0.1)


def hooks(model: nn.Module) -> int:
    """Number of hooks and listeners attached to a model."""
    listening = sum(getattr(module, "on_attention", None) is not None for module in model.modules())
    return listening + sum(len(module._forward_hooks) for module in model.modules())


def test_statistics_by_hand() -> None:
    """Statistics of 0, 0, 3, -5: mean -1/2, squares around it 1/4 + 1/4 + 49/4 + 81/4 = 33."""
    found = statistics(torch.tensor([[0.0, -0.0], [3.0, -5.0]], requires_grad=True))
    assert {name: value.item() for name, value in found.items()} == pytest.approx(
        {"mean": -0.5, "std": math.sqrt(33 / 4), "max_abs": 5, "zero_fraction": 0.5}
    )
    assert {(value.shape, value.dtype, value.requires_grad) for value in found.values()} == {
        (torch.Size([]), torch.float32, False)
    }


@pytest.mark.parametrize("output", [None, (torch.ones(2),), torch.arange(3), torch.empty(0, 4)])
def test_what_has_no_statistics(output: object) -> None:
    assert statistics(output) == {}


def test_a_layer_s_output_is_measured_by_torch_s_own_functions() -> None:
    torch.manual_seed(0)
    model, images = LeNet5(), torch.randn(4, 1, 28, 28)
    outputs: dict[str, Tensor] = {}
    for name, layer in layers(model):
        layer.register_forward_hook(lambda _, __, out, name=name: outputs.setdefault(name, out))
    activations = ActivationStatistics(model, every=1)
    activations.begin_step(1)
    model(images)
    activations.end_step()
    assert {type(layer) for _, layer in layers(model)} == {nn.Conv2d, nn.Linear}
    expected = {}
    for name, out in outputs.items():
        expected[f"activation_mean/{name}"] = out.mean().item()
        expected[f"activation_std/{name}"] = out.std(correction=0).item()
        expected[f"activation_max_abs/{name}"] = out.abs().max().item()
        expected[f"activation_zero_fraction/{name}"] = (out == 0).float().mean().item()
    assert {name: value.item() for name, value in activations.measured.items()} == pytest.approx(expected)


def trained(every: int) -> tuple[list[bytes], list[dict[str, Tensor]], GPT2]:
    """Losses and weights of four steps of two micro-batches, as bytes, and what was measured in each step."""
    torch.manual_seed(0)
    model = GPT2(SMALL)
    optimizer = torch.optim.AdamW(model.parameters())
    activations = ActivationStatistics(model, every=every)
    found, measured = [], []
    for step in range(1, 5):
        activations.begin_step(step)
        for _ in range(2):
            tokens = torch.randint(64, (2, 9))
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            found.append(loss.detach().numpy().tobytes())
        optimizer.step()
        optimizer.zero_grad()
        activations.end_step()
        measured.append(activations.measured)
        assert hooks(model) == 0
    found += [weight.detach().numpy().tobytes() for weight in model.parameters()]
    return found, measured, model


def test_results_stay_and_no_hook_does() -> None:
    off, nothing, _ = trained(0)
    on, measured, model = trained(2)
    assert on == off
    assert nothing == [{}] * 4
    names = [name for name, _ in layers(model)]
    assert {"h.0", "h.1", "h.1.attn.c_attn", "h.1.mlp.c_proj", "lm_head"} <= set(names)
    statistics_of = {f"activation_{it}/{name}" for name in names for it in statistics(torch.ones(1))}
    expected = {*statistics_of, "attention_entropy/h.0.attn", "attention_entropy/h.1.attn"}
    assert [set(found) for found in measured] == [set(), expected, set(), expected]


def test_a_pattern_chooses_layers_and_attention() -> None:
    model = GPT2(SMALL)
    activations = ActivationStatistics(model, every=1, pattern="h.1.attn*")
    activations.begin_step(1)
    activations.begin_step(2)  # the step before was ended by an exception
    assert hooks(model) == 3
    model(torch.zeros(1, 4, dtype=torch.int64))
    activations.end_step()
    assert hooks(model) == 0
    found = {name.partition("/")[2] for name in activations.measured}
    assert found == {"h.1.attn", "h.1.attn.c_attn", "h.1.attn.c_proj"}


def test_the_first_call_of_a_step_counts() -> None:
    """Not that of a later micro-batch, nor one that is computed again in backward."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    model = nn.Sequential(layer)
    activations = ActivationStatistics(model, every=1)
    activations.begin_step(1)
    first: Any = checkpoint(model, torch.full((3, 1), 2.0), use_reentrant=False)
    first.sum().backward()
    model(torch.full((3, 1), 7.0))
    activations.end_step()
    assert activations.measured["activation_mean/0"].item() == 2


def test_entropy_of_uniform_and_of_one_hot_attention() -> None:
    nothing = torch.zeros(3, 2, 5, 4)
    assert attention_entropy(nothing, nothing, is_causal=False).item() == pytest.approx(math.log(5))
    causal = sum(math.log(seen) for seen in range(1, 6)) / 5
    assert attention_entropy(nothing, nothing).item() == pytest.approx(causal)
    apart = 1000 * torch.eye(4).expand(3, 2, 4, 4)  # each query has one key
    assert attention_entropy(apart, apart).item() == 0
    assert attention_entropy(apart, apart, is_causal=False).item() == 0


def test_entropy_is_of_the_weights_that_attention_uses() -> None:
    """Values that are the unit vectors make fused attention give its weights."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 2, 6, 4).unbind()
    weights = F.scaled_dot_product_attention(q, k, torch.eye(6).expand(3, 2, 6, 6), is_causal=True)
    expected = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean()
    assert attention_entropy(q, k).item() == pytest.approx(expected.item())
