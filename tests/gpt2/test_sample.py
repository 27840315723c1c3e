"""Text of a model: what is drawn from, and that the same seed draws the same."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from gpt2.sample import continued


class Successor(nn.Module):
    """Wants the next number most, the one after it less, then all others; 6 and 7 are padding."""

    def forward(self, tokens: Tensor) -> Tensor:
        assert tokens.shape[1] <= 4, "no more than a block"
        logits = torch.zeros(*tokens.shape, 8)
        logits[..., 6:] = 9
        logits.scatter_(-1, ((tokens + 1) % 6).unsqueeze(-1), 4)
        return logits.scatter_(-1, ((tokens + 2) % 6).unsqueeze(-1), 3)


def drawn(*, temperature: float, top_k: int, seed: int = 1) -> list[int]:
    found = continued(
        *(Successor(), torch.tensor([[0, 1]])),
        count=40,
        block_size=4,
        vocabulary=6,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
    )
    return [int(token) for token in found[0]]


def test_temperature_zero_and_one_candidate_take_the_likeliest() -> None:
    assert drawn(temperature=0, top_k=0) == [number % 6 for number in range(42)]
    assert drawn(temperature=1, top_k=1) == drawn(temperature=0, top_k=0)


def test_only_the_likeliest_are_drawn_and_a_seed_draws_the_same() -> None:
    two = drawn(temperature=1, top_k=2)
    assert {(b - a) % 6 for a, b in itertools.pairwise(two)} == {1, 2}
    assert two == drawn(temperature=1, top_k=2) != drawn(temperature=1, top_k=2, seed=2)
    all_of_them = drawn(temperature=100, top_k=0)
    assert set(all_of_them) == set(range(6)), "the padding is never drawn"
