"""ResNet-50's shape and arithmetic are torchvision's, as recorded in tests/data/torchvision_resnet50."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from resnet50.model import EXPANSION, Bottleneck, ResNet

RECORDED = Path(__file__).parents[1] / "data" / "torchvision_resnet50"


@pytest.fixture(scope="module")
def record() -> Any:
    """The script that recorded, for the weights and the pictures that it gave torchvision's model."""
    spec = importlib.util.spec_from_file_location("record", RECORDED / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / "recorded.json").read_bytes())
    return found


@pytest.fixture(scope="module")
def model() -> ResNet:
    """Model with its 1,000 classes, built once: it has 25 million weights to draw."""
    return ResNet(1000)


def test_the_state_dict_is_torchvisions(model: ResNet, recorded: dict[str, Any]) -> None:
    found = {name: list(value.shape) for name, value in model.state_dict().items()}
    assert list(found.items()) == list(recorded["state dict"].items())
    assert sum(weight.numel() for weight in model.parameters()) == recorded["parameters"] == 25_557_032


def test_logits_are_torchvisions(model: ResNet, record: Any, recorded: dict[str, Any]) -> None:
    """A strictly loaded state dict gives torchvision's logits, with running and with batch statistics."""
    model.load_state_dict(
        {name: record.weights_of(name, value) for name, value in model.state_dict().items()}
    )
    for mode in ("evaluating", "training"):
        found = torch.tensor(record.logits_of(model.train(mode == "training")))
        expected = torch.tensor(recorded[f"every 50th logit, {mode}"])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_small_pictures_keep_their_field_until_the_first_stride() -> None:
    """The same blocks and names behind another first convolution: 9 weights for 49, and no pooling."""
    small, usual = (ResNet(10, blocks=(1, 1, 1, 1), width=4, small=small) for small in (True, False))
    pictures = torch.zeros(1, 3, 32, 32)
    fields = [model.layer1(model.maxpool(model.conv1(pictures))).shape[2:] for model in (small, usual)]
    assert fields == [(32, 32), (8, 8)]
    assert small.state_dict().keys() == usual.state_dict().keys()
    assert small.conv1.weight.shape == (4, 3, 3, 3)


def test_a_block_begins_as_its_shortcut() -> None:
    torch.manual_seed(0)
    model = ResNet(10, blocks=(2, 1, 1, 1), width=4, small=True)
    block = model.layer1[1]
    assert isinstance(block, Bottleneck)
    x = torch.rand(2, EXPANSION * 4, 8, 8)
    assert torch.equal(block(x), x)
    gammas = [m.bn3.weight for m in model.modules() if isinstance(m, Bottleneck)]
    assert len(gammas) == 5
    assert not any(gamma.any() for gamma in gammas)
    plain = ResNet(10, blocks=(2, 1, 1, 1), width=4, small=True, zero_init=False)
    assert all(m.bn3.weight.all() for m in plain.modules() if isinstance(m, Bottleneck))


def test_bfloat16_computes_convolutions_alone() -> None:
    """Weights, gradients and logits stay float32, and the logits are near those of float32."""
    torch.manual_seed(0)
    model = ResNet(10, blocks=(1, 1, 1, 1), width=8, small=True)
    pictures = torch.randn(4, 3, 16, 16)
    expected = model(pictures)
    model.bf16 = True
    found = model(pictures)
    found.sum().backward()
    assert {
        found.dtype,
        *(weight.grad.dtype for weight in model.parameters() if weight.grad is not None),
    } == {torch.float32}
    assert 0 < (found - expected).abs().max() < 0.1 * expected.abs().max()


def test_convolutions_begin_as_in_he_et_al() -> None:
    """Normal, with the variance 2 over the values that a map's output goes to (fan out)."""
    torch.manual_seed(0)
    block = ResNet(10, blocks=(1, 1, 1, 1), width=16).layer3[0]
    assert isinstance(block, Bottleneck)
    weight = block.conv2.weight
    expected = (2 / (64 * 9)) ** 0.5
    assert weight.std().item() == pytest.approx(expected, rel=0.02)
    assert weight.mean().item() == pytest.approx(0, abs=expected / 50)
