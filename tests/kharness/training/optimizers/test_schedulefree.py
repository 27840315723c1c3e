"""Schedule-Free AdamW against its paper, and which weights are in the model when."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kharness.training.optimizers import schedulefree
from kharness.training.optimizers._averages import AveragedWeights, PlainWeights, weights_of

RATE, DECAY, EPS, B1, B2 = 0.1, 0.2, 1e-3, 0.9, 0.99


def built(model: nn.Module, *, warmup_steps: int = 0) -> Any:
    options = schedulefree.Options(RATE, (B1, B2), EPS, warmup_steps, DECAY)
    return schedulefree.build(model, options)


def matrix() -> nn.Linear:
    torch.manual_seed(4)
    return nn.Linear(3, 2, bias=False).double()


def draw(steps: int) -> Tensor:
    return torch.randn(steps, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("warmup", [0, 3])
def test_training_and_evaluation_weights_are_the_papers(warmup: int) -> None:
    """Algorithm 1: the model trains y and evaluates x, the average of z by squared rates."""
    model = matrix()
    optimizer = built(model, warmup_steps=warmup)
    weights = weights_of(model, optimizer)
    x = z = model.weight.detach().clone()
    y, v, total = z, torch.zeros(2, 3), 0.0
    for t, g in enumerate(draw(7), 1):
        weights.to_train()
        model.weight.grad = g.clone()
        optimizer.step()
        rate = RATE * min(1.0, t / warmup) if warmup else RATE
        v = B2 * v + (1 - B2) * g**2
        z = z - rate * (g / ((v / (1 - B2**t)).sqrt() + EPS) + DECAY * y)
        total += rate**2
        x = x + rate**2 / total * (z - x)
        y = (1 - B1) * z + B1 * x
        torch.testing.assert_close(model.weight.detach(), y, rtol=1e-10, atol=1e-10)
        weights.to_evaluate()
        torch.testing.assert_close(model.weight.detach(), x, rtol=1e-10, atol=1e-10)


def test_evaluating_changes_no_bit_of_the_training() -> None:
    """In single precision, where computing the trained weights back would round."""
    ends = []
    for evaluated in (True, False):
        model = matrix().float()
        optimizer = built(model)
        weights = weights_of(model, optimizer)
        for gradient in draw(20).float():
            weights.to_train()
            model.weight.grad = gradient.clone()
            optimizer.step()
            if evaluated:
                weights.to_evaluate()
                weights.to_evaluate()
        weights.to_train()
        ends.append(model.weight.detach().clone())
    assert torch.equal(*ends)


def test_trained_weights_of_another_model_are_refused() -> None:
    model = matrix()
    weights = weights_of(model, built(model))
    assert isinstance(weights, AveragedWeights)
    with pytest.raises(ValueError, match="its trained weights are of another model"):
        weights.load_state_dict({"weight": torch.zeros(2, 2)})


def test_other_optimizers_keep_no_average() -> None:
    model = matrix()
    assert isinstance(weights_of(model, torch.optim.SGD(model.parameters())), PlainWeights)
