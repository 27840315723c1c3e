"""The moving average of weights follows the published recurrence, and continues bit for bit."""

from __future__ import annotations

import copy

import torch
from torch import nn

from kharness.training.optimizers._averages import MovingAverage, moving_average


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def moved(trained: nn.Module) -> None:
    """Change weights and running statistics as a training step would."""
    with torch.no_grad():
        for weight in trained.parameters():
            weight.add_(torch.randn_like(weight))
    trained(torch.randn(5, 3))


def test_the_average_follows_the_recurrence_of_a_decay_that_begins_low() -> None:
    """kept = min(decay, (1 + n) / (10 + n)), in float64; counters are copied."""
    trained = model()
    average = MovingAverage(trained, 0.15)
    expected = {name: value.double() for name, value in copy.deepcopy(trained.state_dict()).items()}
    for kept in (0.1, 0.15, 0.15):  # 1/10, then 2/11 and 3/12, which the decay bounds
        moved(trained)
        average.update()
        for name, value in trained.state_dict().items():
            expected[name] = kept * expected[name] + (1 - kept) * value.double()
    found = average.model.state_dict()
    assert found.pop("1.num_batches_tracked").item() == trained.state_dict()["1.num_batches_tracked"] == 3
    for name, value in found.items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-6, atol=1e-7)
    assert not any(weight.requires_grad for weight in average.model.parameters())
    assert not torch.equal(found["0.weight"], trained.state_dict()["0.weight"])


def test_a_restored_average_continues_bit_for_bit() -> None:
    trained = model()
    whole = MovingAverage(trained, 0.9)
    moved(trained)
    whole.update()
    resumed = MovingAverage(trained, 0.9)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    moved(trained)
    for average in (whole, resumed):
        average.update()
    assert resumed.updates == whole.updates == 2
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)


def test_a_decay_of_zero_keeps_no_average() -> None:
    assert moving_average(model(), 0.0) is None
    assert moving_average(model(), None) is None
    assert isinstance(moving_average(model(), 0.5), MovingAverage)
