"""GPT-2's model: its published sizes, and what its first weights give."""

from __future__ import annotations

import math

import pytest
import torch

from gpt2.model import GPT2, Shape

# Table 2 of Radford et al. 2019, and the parameters of the released checkpoints.
PUBLISHED = {
    (12, 12, 768): 124_439_808,
    (24, 16, 1024): 354_823_168,
    (36, 20, 1280): 774_030_080,
    (48, 25, 1600): 1_557_611_200,
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_parameters_are_those_published_and_the_padding(size: tuple[int, int, int]) -> None:
    layers, heads, width = size
    shape = Shape(50_257, 1024, layers, heads, width)
    with torch.device("meta"):
        model = GPT2(shape)
    assert shape.padded_vocabulary == 50_304
    padding = (50_304 - 50_257) * width
    assert sum(parameter.numel() for parameter in model.parameters()) - padding == PUBLISHED[size]


def test_first_prediction_is_nearly_uniform_and_causal() -> None:
    torch.manual_seed(1)
    model = GPT2(Shape(vocabulary=128, block_size=16, layers=2, heads=2, width=32)).eval()
    tokens = torch.randint(128, (2, 16))
    logits = model(tokens).detach()
    assert logits.shape == (2, 16, 128)
    entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
    assert math.log(128) - float(entropy.min()) < 0.05
    tokens[:, 8:] = 0
    assert torch.equal(model(tokens)[:, :8], logits[:, :8])
