"""Muon: which parameters it trains, and its step against the singular values of the momentum."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim._muon import _zeropower_via_newtonschulz

from kharness.training.errors import TrainingError
from kharness.training.optimizers import build_optimizer, muon
from kharness.training.schedules import set_learning_rate
from lenet5.model import LeNet5
from resnet50.model import ResNet

# The coefficients of Jordan et al. 2024.
JORDANS = (3.4445, -4.775, 2.0315)

SYMBOLS: dict[str, Any] = {
    "LEARNING_RATE": 0.02,
    "WEIGHT_DECAY": 0.1,
    "OPTIMIZER_MUON_MOMENTUM": 0.95,
    "OPTIMIZER_MUON_BF16": False,
    "OPTIMIZER_MUON_NESTEROV": True,
    "OPTIMIZER_MUON_MATCH_ADAMW": False,
    "OPTIMIZER_MUON_ADAMW_RATE": 0.005,
    "OPTIMIZER_MUON_ADAMW_BETAS": [0.9, 0.99],
    "OPTIMIZER_MUON_ADAMW_EPS": 1e-8,
}


class Tied(nn.Module):
    """A head that shares its weight with the embedding, after layers that Muon trains."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.hidden = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.hidden(self.embedding(x)))
        return y


def groups(model: nn.Module) -> list[tuple[list[str], float, float]]:
    described = build_optimizer("muon", model, SYMBOLS)[1]["groups"]
    return [(one["names"], one["weight_decay"], one["learning_rate"]) for one in described]


def test_hidden_matrices_are_muons_and_the_rest_is_adamws() -> None:
    biases = ["conv1.bias", "conv2.bias", "fc1.bias", "fc2.bias", "fc3.bias"]
    assert groups(LeNet5()) == [
        (["conv2.weight", "fc1.weight", "fc2.weight"], 0.1, 0.02),
        (["conv1.weight", "fc3.weight"], 0.1, 0.005),
        (biases, 0.0, 0.005),
    ]
    assert groups(Tied()) == [
        (["hidden.weight"], 0.1, 0.02),
        (["embedding.weight"], 0.1, 0.005),
        (["hidden.bias"], 0.0, 0.005),
    ]


def test_muon_trains_nearly_all_of_resnet50() -> None:
    """Every convolution but the first, whose weights were AdamW's: LEARNING_RATE had no effect."""
    model = ResNet(width=4, blocks=(1, 1, 1, 1), classes=10)
    described = build_optimizer("muon", model, SYMBOLS)[1]["groups"]
    names = {name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)}
    assert {name.removesuffix(".weight") for name in described[0]["names"]} == names - {"conv1"}
    assert described[1]["names"] == ["conv1.weight", "fc.weight"]


class SeveralHeads(Tied):
    """A head of its own, then another: the first would be Muon's if only the last layer were AdamW's."""

    def __init__(self, **output_layers: tuple[str, ...]) -> None:
        super().__init__()
        del self.head
        self.lm_head, self.projection = nn.Linear(4, 7), nn.Linear(4, 4, bias=False)
        self.aux_heads = nn.ModuleList([nn.Linear(4, 7), nn.Linear(4, 3)])
        self.__dict__ |= output_layers


def test_heads_are_adamws_by_what_the_model_says_or_by_their_names() -> None:
    def muons(model: nn.Module) -> list[str]:
        return groups(model)[0][0]

    assert muons(SeveralHeads()) == ["hidden.weight", "projection.weight"]
    said = SeveralHeads(output_layers=("projection", "aux_heads.0"))
    assert muons(said) == ["hidden.weight", "lm_head.weight", "aux_heads.1.weight"]
    with pytest.raises(TrainingError) as caught:
        muons(SeveralHeads(output_layers=("haed",)))
    assert (str(caught.value), caught.value.hint) == (
        "OPTIMIZER=muon: output_layers names 'haed', which SeveralHeads has not",
        "its layers: embedding, hidden, lm_head, projection, aux_heads",
    )
    said.pos_embed, said.mixing = nn.Parameter(torch.zeros(5, 4)), nn.Parameter(torch.zeros(4, 4))
    assert muons(said) == ["mixing", "hidden.weight", "lm_head.weight", "aux_heads.1.weight"]
    layers = ["h.0.mlp.c_fc", "h.0.attn.heads.0", "fc1", "classifier.0", "mlp.fc", "header"]
    heads = ["fc", "head", "lm_head", "model.lm_head", "heads.head", "classifier", "aux_heads.1"]
    assert [name for name in layers + heads if muon.HEADS.fullmatch(name)] == heads


def test_model_without_hidden_matrices_is_refused() -> None:
    depthwise = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3, groups=4), nn.Linear(4, 2))
    for model in (nn.Linear(3, 2), depthwise):
        with pytest.raises(TrainingError) as caught:
            groups(model)
        assert str(caught.value) == (
            "OPTIMIZER=muon: the model has no hidden matrices, so LEARNING_RATE would have no effect"
        )


@pytest.mark.parametrize("match_adamw", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_convolution_takes_the_step_of_its_flattened_matrix(match_adamw: bool, channels_last: bool) -> None:
    """Jordan's muon_update: update.view(len(update), -1); torch's Muon steps the matrix."""
    drawn = torch.Generator().manual_seed(3)
    weight, *gradients = (torch.randn(6, 4, 3, 3, generator=drawn) for _ in range(4))
    flat = nn.Parameter(weight.flatten(1).clone())
    memory = torch.channels_last if channels_last else torch.contiguous_format
    filters = nn.Parameter(weight.clone(memory_format=memory))
    options: dict[str, Any] = {
        "lr": 0.02,
        "weight_decay": 0.1,
        "adjust_lr_fn": "match_rms_adamw" if match_adamw else "original",
    }
    ours, torchs = muon.BatchedMuon([filters], bf16=True, **options), torch.optim.Muon([flat], **options)
    for gradient in gradients:
        filters.grad, flat.grad = gradient.clone(memory_format=memory), gradient.flatten(1)
        ours.step()
        torchs.step()
    torch.testing.assert_close(filters.flatten(1), flat, rtol=1e-2, atol=1e-4)
    assert filters.is_contiguous(memory_format=memory)


def test_schedule_moves_both_rates_alike() -> None:
    optimizer, _ = build_optimizer("muon", LeNet5(), SYMBOLS)
    set_learning_rate(optimizer, 0.01)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.0025, 0.0025]
    optimizer.load_state_dict(optimizer.state_dict())
    set_learning_rate(optimizer, 0.004)
    assert [group["lr"] for part in optimizer.parts for group in part.param_groups] == [0.004, 0.001, 0.001]  # type: ignore[attr-defined]


def test_step_of_a_hidden_matrix_is_jordans() -> None:
    """Its singular values go five times through 3.4445 s - 4.775 s^3 + 2.0315 s^5."""
    given = torch.randn(3, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    start = torch.ones(4, 3, dtype=torch.float64)

    class Between(nn.Sequential):
        """The matrix is no last layer."""

        def __init__(self, weight: Tensor) -> None:
            super().__init__(nn.Linear(3, 4, bias=False), nn.Linear(4, 1, bias=False))
            self.weight = nn.Parameter(weight.clone())

    model = Between(start)
    options = muon.Options(
        learning_rate=0.1,
        momentum=0.9,
        nesterov=True,
        match_adamw=False,
        bf16=False,
        adamw_rate=0.1,
        adamw_betas=(0.9, 0.99),
        adamw_eps=1e-8,
        weight_decay=0.2,
    )
    optimizer = muon.build(model, options)
    weight, momentum = start, torch.zeros(4, 3, dtype=torch.float64)
    for gradient in given:
        model.weight.grad = gradient.clone()
        optimizer.step()
        momentum = 0.9 * momentum + 0.1 * gradient
        u, s, v = torch.linalg.svd(0.1 * gradient + 0.9 * momentum, full_matrices=False)
        s = s / s.norm()
        for _ in range(5):
            s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
        # 4 rows by 3 columns: the update is scaled by sqrt(4 / 3)
        weight = weight * (1 - 0.1 * 0.2) - 0.1 * (4 / 3) ** 0.5 * (u * s) @ v
        torch.testing.assert_close(model.weight.detach(), weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("match_adamw", "bf16"), [(False, False), (True, False), (False, True)])
def test_matrices_of_one_shape_take_the_step_that_torchs_muon_takes(match_adamw: bool, bf16: bool) -> None:
    """Which computes in bfloat16; state and groups are the same."""
    generator = torch.Generator().manual_seed(2)
    shapes = [(8, 8), (24, 8), (8, 24), (24, 8), (8, 8)]
    starts = [torch.randn(shape, generator=generator) for shape in shapes]
    ours, torchs = ([nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    adjust = "match_rms_adamw" if match_adamw else "original"
    optimizers = [
        muon.BatchedMuon(ours, lr=0.1, weight_decay=0.2, adjust_lr_fn=adjust, bf16=bf16),
        torch.optim.Muon(torchs, lr=0.1, weight_decay=0.2, adjust_lr_fn=adjust),
    ]
    for _ in range(2):
        for own, other in zip(ours, torchs, strict=True):
            own.grad = torch.randn(own.shape, generator=generator)
            other.grad = own.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for own, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0.005 if bf16 else 0.01)
    own_state, other_state = (optimizer.state_dict() for optimizer in optimizers)
    assert own_state["param_groups"] == other_state["param_groups"]
    for number, state in other_state["state"].items():
        assert own_state["state"][number].keys() == state.keys()
        assert torch.equal(own_state["state"][number]["momentum_buffer"], state["momentum_buffer"])


@pytest.mark.parametrize("smallest", [1e-1, 1e-4, 0.0])
def test_nearly_singular_matrices_are_orthogonalized_in_float32_as_in_float64(smallest: float) -> None:
    generator = torch.Generator().manual_seed(3)
    u, _, v = torch.linalg.svd(
        torch.randn(2, 16, 64, dtype=torch.float64, generator=generator), full_matrices=False
    )
    values = torch.linspace(1, smallest, 16, dtype=torch.float64).pow(4)
    expected = values / values.norm()
    for _ in range(5):
        expected = 3.4445 * expected - 4.775 * expected**3 + 2.0315 * expected**5
    [found] = muon.orthogonalized([((u * values) @ v).float()], coefficients=JORDANS, steps=5, eps=1e-7)
    torch.testing.assert_close(found.double(), (u * expected) @ v, rtol=0, atol=2e-4)


def test_what_is_computed_beside_a_matrix_changes_no_bit_of_its_step() -> None:
    generator = torch.Generator().manual_seed(4)
    stacks = [
        torch.randn(n, *shape, generator=generator) for n, shape in ((1, (8, 8)), (2, (24, 8)), (3, (8, 32)))
    ]

    def moved(updates: list[Tensor]) -> list[Tensor]:
        return muon.orthogonalized(updates, coefficients=JORDANS, steps=5, eps=1e-7)

    for together, alone in zip(moved(stacks), [moved([stack])[0] for stack in stacks], strict=True):
        assert torch.equal(together, alone)


@pytest.mark.parametrize("shape", [(16, 64), (64, 16), (16, 16)])
@pytest.mark.parametrize("smallest", [1.0, 1e-3])
def test_bfloat16_is_as_near_to_the_rule_as_torchs_own(shape: tuple[int, int], smallest: float) -> None:
    """Relative to float64's, also where singular values differ by nine orders of magnitude."""
    generator = torch.Generator().manual_seed(4)
    u, _, v = torch.linalg.svd(
        torch.randn(shape, dtype=torch.float64, generator=generator), full_matrices=False
    )
    given = (u * torch.linspace(1, smallest, 16, dtype=torch.float64) ** 3) @ v
    [[exact]] = muon.orthogonalized([given[None]], coefficients=JORDANS, steps=5, eps=1e-7)
    [[ours]] = muon.orthogonalized_in_bf16([given[None].float()], coefficients=JORDANS, steps=5, eps=1e-7)
    torchs = _zeropower_via_newtonschulz(given.float(), JORDANS, 5, 1e-7)
    assert ours.dtype == torch.float32
    error, torchs_error = ((one.double() - exact).norm().item() for one in (ours, torchs))
    assert 0 < error < 1.5 * torchs_error
