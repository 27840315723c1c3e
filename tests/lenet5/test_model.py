"""LeNet-5's shape and arithmetic."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from lenet5.model import LeNet5


def test_parameters_are_those_counted_by_hand() -> None:
    counted = {
        "conv1": 6 * 1 * 5 * 5 + 6,
        "conv2": 16 * 6 * 5 * 5 + 16,
        "fc1": 400 * 120 + 120,
        "fc2": 120 * 84 + 84,
        "fc3": 84 * 10 + 10,
    }
    model = LeNet5()
    found = {name: sum(p.numel() for p in layer.parameters()) for name, layer in model.named_children()}
    assert found == counted
    assert sum(counted.values()) == 61_706


def test_forward_is_the_documented_chain() -> None:
    """Written out with ReLU before the pooling, as it is usually drawn."""
    torch.manual_seed(0)
    model = LeNet5()
    images = torch.randn(3, 1, 28, 28)
    field = F.pad(images, (2, 2, 2, 2))
    x = F.max_pool2d(F.relu(F.conv2d(field, model.conv1.weight, model.conv1.bias)), 2)
    assert x.shape == (3, 6, 14, 14)
    x = F.max_pool2d(F.relu(F.conv2d(x, model.conv2.weight, model.conv2.bias)), 2)
    assert x.shape == (3, 16, 5, 5)
    x = F.relu(model.fc1(x.reshape(3, 400)))
    expected = model.fc3(F.relu(model.fc2(x)))
    torch.testing.assert_close(model(images), expected)


def test_channels_last_changes_the_layout_only() -> None:
    torch.manual_seed(0)
    model = LeNet5()
    images = torch.randn(5, 1, 28, 28)
    expected = model(images)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs
    torch.testing.assert_close(model(images), expected)
