"""GPT-2's model: its published sizes, and what its first weights give."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from gpt2.derivatives import turned
from gpt2.model import GPT2, Shape, build_model, rotations
from kharness.config.options import parse
from kharness.training.errors import TrainingError

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


def test_logits_are_those_of_hugging_faces_gpt2(root: Path) -> None:
    """Their linear layers keep their weights transposed; tests/data/gpt2_logits/record.py made the file."""
    recorded = json.loads((root / "tests/data/gpt2_logits/logits.json").read_text())
    model = GPT2(Shape(vocabulary=64, block_size=12, layers=2, heads=4, width=16)).double().eval()
    weights = {}
    for number, name in enumerate(recorded["parameters"]):
        own = name.removeprefix("transformer.")
        shape = model.get_parameter(own).shape
        is_transposed = own.startswith("h.") and len(shape) == 2
        made = torch.sin(torch.arange(shape.numel(), dtype=torch.float64) * 0.7 + number).mul(0.2)
        weights[own] = made.reshape(shape[::-1]).T if is_transposed else made.reshape(shape)
    model.load_state_dict({**weights, "lm_head.weight": weights["wte.weight"]})
    logits = model(torch.tensor(recorded["tokens"]))[:, -1]
    torch.testing.assert_close(logits, torch.tensor(recorded["logits"]), rtol=1e-5, atol=1e-6)


MODERN = Shape(
    *(128, 16, 4, 2, 32),
    bias=False,
    rotary=True,
    qk_norm=True,
    squared_relu=True,
    rms_norm=True,
    zero_init=True,
    tied=False,
    value_embeddings=True,
    shortcuts=True,
    softcap=15.0,
)


def test_the_modern_model_begins_uniform_and_learns_with_every_part() -> None:
    torch.manual_seed(1)
    model = GPT2(MODERN)
    tokens = torch.randint(128, (2, 16))
    assert torch.equal(model(tokens), torch.zeros(2, 16, 128))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(3):  # head, then output projections, then what is behind them
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
    silent = [name for name, weight in model.named_parameters() if not weight.grad.abs().any()]  # type: ignore[union-attr]
    assert silent == []
    with torch.no_grad():
        model.lm_head.weight.mul_(1e4)
        assert 14 < float(model(tokens).abs().max()) <= 15


def test_on_a_cpu_bf16_is_a_matter_of_linear_layers_alone() -> None:
    """Logits are those of float32 but for the rounding of products; nothing else computes in bfloat16."""
    torch.manual_seed(1)
    shape = dataclasses.replace(MODERN, bias=True, zero_init=False)
    exact, rounded = GPT2(shape), GPT2(dataclasses.replace(shape, bf16=True))
    rounded.load_state_dict(exact.state_dict())
    types: list[torch.dtype] = []
    for module in rounded.modules():
        module.register_forward_hook(lambda module, given, made: types.append(made.dtype))
    tokens = torch.randint(128, (2, 16))
    torch.testing.assert_close(rounded(tokens), exact(tokens), rtol=0.02, atol=0.01)
    assert set(types) == {torch.float32}


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    turns = rotations(MODERN)
    q, k = torch.randn(2, 1, 1, 1, 16, generator=torch.Generator().manual_seed(1)).expand(2, 1, 1, 16, 16)
    scores = (turned(q, turns) @ turned(k, turns).transpose(-1, -2))[0, 0]
    torch.testing.assert_close(scores[1:, 1:], scores[:-1, :-1])
    assert float((scores[5] - scores[5, 5]).abs().max()) > 0.1
    torch.testing.assert_close(turned(q, turns).norm(dim=-1), q.norm(dim=-1))


def test_a_width_that_the_heads_do_not_divide_is_refused(root: Path) -> None:
    argv = ["--gpt2-rotary", "--gpt2-heads", "4", "--gpt2-width", "12"]
    options, _ = parse(argv, root=root, model="gpt2", prog="", description="")
    with pytest.raises(TrainingError, match="GPT2_WIDTH=12 is not a multiple of 8"):
        build_model(options, vocabulary=256, device=torch.device("cpu"))


def test_every_option_of_the_modern_recipe_can_be_left_out_by_itself(root: Path) -> None:
    """Each is a symbol whose default the recipe sets."""
    flags = [name for name, value in dataclasses.asdict(MODERN).items() if value is True]
    argv = ["--gpt2-recipe", "modern", "--no-gpt2-rotary", "--gpt2-softcap", "0", "--amp", "bf16"]
    options, _ = parse(argv, root=root, model="gpt2", prog="", description="")
    shape = build_model(options, vocabulary=256, device=torch.device("cpu")).shape
    found = {name: getattr(shape, name) for name in (*flags, "bias", "tied", "softcap", "bf16")}
    assert found == {
        **dict.fromkeys(flags, True),
        **dict.fromkeys(("rotary", "bias", "tied"), False),
        "softcap": 0.0,
        "bf16": True,
    }
