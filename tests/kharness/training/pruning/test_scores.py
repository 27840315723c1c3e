"""Each score prunes the weights that plain loops find; some weights are never pruned."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from kharness.training.errors import TrainingError
from kharness.training.pruning import Pruner, Pruning, build_pruner
from kharness.training.pruning._options import SparsitySchedule
from kharness.training.pruning._pruner import prunable


def built(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, **symbols: object) -> Pruning:
    """Half of the weights, from the second of four steps on."""
    values = {
        "PRUNING_SPARSITY": 0.5,
        "PRUNING_START_FRACTION": 0.5,
        "PRUNING_END_FRACTION": 0.5,
        "PRUNING_EVERY": 1,
        "PRUNING_GLOBAL": True,
        "SPARSITY_SCHEDULE": "cubic",
        **symbols,
    }
    return build_pruner(name, model, optimizer, values, num_steps=4)


def zeros(weight: Tensor) -> list[int]:
    return (weight.detach().flatten() == 0).nonzero().flatten().tolist()


def lowest(scores: Sequence[float], count: int) -> list[int]:
    return sorted(sorted(range(len(scores)), key=lambda i: scores[i])[:count])


def descend(
    model: nn.Linear, optimizer: torch.optim.Optimizer, method: Pruning, gradients: Tensor
) -> list[list[float]]:
    """The weights that each step began with."""
    seen = []
    for step, gradient in enumerate(gradients, 1):
        seen.append(model.weight.detach().flatten().tolist())
        model.weight.grad = gradient.clone()
        optimizer.step()
        method.after_step(step)
    return seen


def drawn(steps: int, *, shape: tuple[int, int] = (3, 4)) -> Tensor:
    return torch.randn(steps, *shape, generator=torch.Generator().manual_seed(5))


def test_movement_is_weight_times_its_way() -> None:
    """A weight that grew from 1 to 1.5 stays, one that shrank from 1 to 0.5 goes."""
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 1.0, -2.0, -0.2]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    method = built("movement", model, optimizer)
    descend(model, optimizer, method, torch.tensor([[[-1.0, 1.0, 1.0, 0.2]], [[0.0] * 4]]))
    # 1.5 * 0.5, 0.5 * -0.5, -2.5 * -0.5, -0.3 * -0.1
    assert model.weight.flatten().tolist() == [1.5, 0.0, -2.5, 0.0]


def test_movement_of_sanh_sums_every_step_and_lets_weights_return() -> None:
    """Equation 4, from all steps, at the values that pruned weights were pruned at."""
    gradients = drawn(8)
    torch.manual_seed(2)
    model = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    fractions = {"PRUNING_START_FRACTION": 0.5, "PRUNING_END_FRACTION": 1.0}
    values = {"PRUNING_SPARSITY": 0.5, "PRUNING_EVERY": 2, "PRUNING_GLOBAL": True, **fractions}
    method = build_pruner("movement-sanh", model, optimizer, values, num_steps=8)
    plain = model.weight.detach().flatten().tolist()
    movement, pruned = [0.0] * 12, list[int]()
    masks = []
    for step, gradient in enumerate(gradients, 1):
        given = gradient.flatten().tolist()
        movement = [s - g * w for s, g, w in zip(movement, given, plain, strict=True)]
        plain = [w if i in pruned else w - 0.3 * g for i, (w, g) in enumerate(zip(plain, given, strict=True))]
        if step >= 4 and step % 2 == 0:
            share = 0.5 * (1 - (1 - (step - 4) / 4) ** 3)
            pruned = lowest(movement, round(share * 12))
        descend_once(model, optimizer, method, gradient, step)
        expected = [0.0 if i in pruned else w for i, w in enumerate(plain)]
        assert model.weight.flatten().tolist() == pytest.approx(expected, rel=1e-5)
        masks.append(set(pruned))
    assert len(masks[-1]) == 6
    assert masks[5] - masks[7], "a pruned weight has returned"


def descend_once(
    model: nn.Linear, optimizer: torch.optim.Optimizer, method: Pruning, gradient: Tensor, step: int
) -> None:
    model.weight.grad = gradient.clone()
    optimizer.step()
    method.after_step(step)


# |w|, |m|, v, 1 - b1^t
VARIANTS = {
    "bitter0": lambda w, m, v, c: w * m * w / (math.sqrt(v) + 1e-8),
    "bitter3": lambda w, m, v, c: w * math.sqrt(m + 1e-8),
    "bitter7": lambda w, m, v, c: w * (v + 1e-8) ** 0.25,
    "bitter8": lambda w, m, v, c: w * math.sqrt(m / c),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_state_scores_by_the_optimizers_own_moments(variant: str, dtype: torch.dtype) -> None:
    """In plain Python from what the optimizer holds; and the score itself is in single precision."""
    model = nn.Linear(10, 6, bias=False, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, betas=(0.8, 0.95))
    method = built("state", model, optimizer, PRUNING_STATE_VARIANT=variant)
    assert isinstance(method, Pruner)
    gradients = drawn(2, shape=(6, 10)).to(dtype)
    descend(model, optimizer, method, gradients[:1])
    model.weight.grad = gradients[1].clone()
    optimizer.step()
    state = optimizer.state[model.weight]
    columns = [
        tensor.detach().float().abs().flatten().tolist()
        for tensor in (model.weight, state["exp_avg"], state["exp_avg_sq"])
    ]
    scores = [VARIANTS[variant](w, m, v, 1 - 0.8**2) for w, m, v in zip(*columns, strict=True)]
    score = method._method.score(model.weight, method._state("weight"))
    assert score.dtype == torch.float32
    assert score.flatten().tolist() == pytest.approx(scores, rel=1e-5)
    method.after_step(2)
    assert zeros(model.weight) == lowest(scores, 30)


def test_state_needs_two_moments() -> None:
    model = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    method = built("state", model, optimizer, PRUNING_STATE_VARIANT="bitter0")
    with pytest.raises(TrainingError, match="the optimizer keeps no first and second moment of each weight"):
        descend(model, optimizer, method, drawn(2))


def fours(weight: Tensor) -> Tensor:
    """Zeros in each four of a row."""
    return (weight.detach() == 0).reshape(-1, 4).sum(1)


def test_two_of_four_are_zero_and_they_are_the_smaller() -> None:
    """Rows of 18 in the first layer cannot be divided by four."""
    torch.manual_seed(1)
    first, second, last = nn.Conv2d(2, 3, 3), nn.Conv2d(4, 3, 3), nn.Linear(12, 5)
    model = nn.Sequential(first, second, last)
    weights = [layer.weight for layer in (first, second, last)]
    before = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    method = built("semi-structured", model, optimizer)
    for step in (1, 2):
        method.after_step(step)
    assert torch.equal(weights[0], before[0])
    for weight, old in zip(weights[1:], before[1:], strict=True):
        assert fours(weight).tolist() == [2] * (weight.numel() // 4)
        sizes = old.abs().reshape(-1, 4)
        kept = sizes >= sizes.sort(dim=1).values[:, 2:3]
        assert (weight != 0).tolist() == kept.view(weight.shape).tolist()
    assert method.measured() == {"sparsity": 0.5}


def test_two_of_four_holds_for_weights_that_begin_at_zero() -> None:
    """Step by step, with weights that are zero without being pruned."""
    model = nn.Linear(16, 8, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    nn.init.zeros_(model.weight)
    fractions = {"PRUNING_START_FRACTION": 0.1, "PRUNING_END_FRACTION": 1.0, "PRUNING_GLOBAL": True}
    symbols = {"PRUNING_EVERY": 1, **fractions}
    method = build_pruner("semi-structured", model, optimizer, symbols, num_steps=9)
    gradients = drawn(9, shape=(8, 16))
    gradients[:4] = 0
    for step, gradient in enumerate(gradients, 1):
        descend_once(model, optimizer, method, gradient, step)
    assert fours(model.weight).tolist() == [2] * 32


def test_model_in_which_nothing_fits_is_refused() -> None:
    model = nn.Linear(5, 3)
    with pytest.raises(TrainingError, match="PRUNING=semi-structured: the model has no weights") as caught:
        built("semi-structured", model, torch.optim.SGD(model.parameters()))
    assert caught.value.hint == "choose another method, or PRUNING=none"


class Language(nn.Module):
    """One embedding that the head shares, and one of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8, 4)
        self.positions = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm([5, 4])
        self.hidden = nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.tokens.weight


def test_tied_weight_is_masked_once_and_embeddings_not_at_all() -> None:
    model = Language()
    assert list(prunable(model)) == ["tokens.weight", "hidden.weight"]
    method = built("magnitude", model, torch.optim.SGD(model.parameters(), lr=0.1))
    method.after_step(2)
    assert method.measured() == {"sparsity": 0.5}
    assert len(zeros(model.head.weight)) + len(zeros(model.hidden.weight)) == (32 + 16) // 2
    assert list(method.state_dict()["pruned"]) == ["tokens.weight", "hidden.weight"]
    assert not zeros(model.positions.weight)


@pytest.mark.parametrize(
    ("shape", "shares"),
    [
        ("cubic", [0.0, 37 / 64, 7 / 8, 63 / 64, 1.0]),
        ("linear", [0.0, 1 / 4, 1 / 2, 3 / 4, 1.0]),
        ("slow-to-fast", [0.0, 1 / 64, 1 / 8, 27 / 64, 1.0]),
    ],
)
def test_sparsity_rises_by_its_schedule(shape: str, shares: list[float]) -> None:
    schedule = SparsitySchedule(final=0.8, first_step=20, last_step=60, every=10, shape=shape)
    assert [schedule(step) for step in (20, 30, 40, 50, 60)] == pytest.approx([0.8 * s for s in shares])


def test_one_shot_prunes_once_where_the_others_end() -> None:
    model = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = built("magnitude", model, optimizer, SPARSITY_SCHEDULE="one-shot", PRUNING_START_FRACTION=0.0)
    assert isinstance(method, Pruner)
    assert [step for step in range(5) if method.schedule.is_due(step)] == [2]
    found = []
    for step, gradient in enumerate(drawn(4), 1):
        descend_once(model, optimizer, method, gradient, step)
        found.append(method.measured()["sparsity"])
    assert found == [0.0, 0.5, 0.5, 0.5]
