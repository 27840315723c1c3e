"""Each rule in double precision as its source states it, step by step, beside what is built."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from kharness.training.optimizers import (
    adafactor,
    adamwadv,
    adamwspam,
    ademamix,
    lion,
    nadamw,
    spam,
)

from .conftest import Descend

RATE, DECAY, EPS, B1, B2 = 0.1, 0.2, 1e-3, 0.9, 0.99
START = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]], dtype=torch.float64)
COMMON = {"learning_rate": RATE, "weight_decay": DECAY}


def gradients(steps: int, *, spikes: tuple[int, ...] = ()) -> Tensor:
    """Gradients of changing size and sign, fifty times as large in the steps of `spikes` (from 1)."""
    drawn = torch.randn(steps, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for step in spikes:
        drawn[step - 1] *= 50
    return drawn


def assert_follows(ours: Tensor, rule: Iterator[Tensor], *, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(ours, torch.stack(list(rule)), rtol=tolerance, atol=tolerance)


def moved(w: Tensor, update: Tensor, *, rate: float = RATE) -> Tensor:
    """With decoupled decay, as torch scales it."""
    return w * (1 - rate * DECAY) - rate * update


def test_nadamw_is_dozats(descend: Descend) -> None:
    """Algorithm 2 with the momentum schedule of its section 4, mu_t = beta1 (1 - 0.96^(t psi) / 2)."""
    psi, given = 0.05, gradients(6)

    def rule() -> Iterator[Tensor]:
        w, m, v, product = START, torch.zeros(2, 3), torch.zeros(2, 3), 1.0
        for t, g in enumerate(given, 1):
            mu, following = (B1 * (1 - 0.5 * 0.96 ** (n * psi)) for n in (t, t + 1))
            product *= mu
            m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
            nesterov = (1 - mu) * g / (1 - product) + following * m / (1 - product * following)
            w = moved(w, nesterov / ((v / (1 - B2**t)).sqrt() + EPS))
            yield w

    options = {"betas": (B1, B2), "eps": EPS, "momentum_decay": psi}
    # torch keeps the product in single precision
    assert_follows(descend(nadamw, START, given, **COMMON, **options), rule(), tolerance=1e-7)


def test_adafactor_is_shazeer_and_sterns(descend: Descend) -> None:
    """Algorithms 4 and 5: factored second moment, updates clipped, steps relative to the weights."""
    given = gradients(6, spikes=(4,))

    def rule() -> Iterator[Tensor]:
        w, rows, columns = START, torch.zeros(2, 1), torch.zeros(1, 3)
        for t, g in enumerate(given, 1):
            new = t**-0.8
            rows = (1 - new) * rows + new * (g**2).mean(1, keepdim=True)
            columns = (1 - new) * columns + new * (g**2).mean(0, keepdim=True)
            update = g / (rows @ columns / rows.mean()).sqrt()
            update = update / max(1.0, update.square().mean().sqrt().item() / 1.25)
            relative = max(0.01, w.square().mean().sqrt().item()) * min(RATE, 1 / math.sqrt(t))
            w = w * (1 - RATE * DECAY) - relative * update
            yield w

    options = {"beta2_decay": -0.8, "scale": 0.01, "clip": 1.25}
    assert_follows(descend(adafactor, START, given, **COMMON, **options), rule())


def test_lion_is_chens(descend: Descend) -> None:
    """Algorithm 2: the sign of an interpolation, then the momentum, each with its own beta."""
    given = gradients(8)

    def rule() -> Iterator[Tensor]:
        w, m = START, torch.zeros(2, 3)
        for g in given:
            w = moved(w, (0.8 * m + 0.2 * g).sign())
            m = B2 * m + (1 - B2) * g
            yield w

    assert_follows(descend(lion, START, given, **COMMON, betas=(0.8, B2)), rule())


@pytest.mark.parametrize("warmup", [0, 4])
def test_ademamix_is_pagliardinis(descend: Descend, warmup: int) -> None:
    """Algorithm 1, with the schedulers of alpha and beta3 of its section 3."""
    b3, alpha, given = 0.999, 4.0, gradients(7)

    def rule() -> Iterator[Tensor]:
        w, fast, slow, v = START, *(torch.zeros(2, 3) for _ in range(3))
        for t, g in enumerate(given, 1):
            share = min(1.0, t / warmup) if warmup else 1.0
            logs = math.log(B1), math.log(b3)
            b3_t = min(b3, math.exp(logs[0] * logs[1] / ((1 - share) * logs[1] + share * logs[0])))
            fast, slow = B1 * fast + (1 - B1) * g, b3_t * slow + (1 - b3_t) * g
            v = B2 * v + (1 - B2) * g**2
            mixed = fast / (1 - B1**t) + alpha * share * slow
            w = moved(w, mixed / ((v / (1 - B2**t)).sqrt() + EPS))
            yield w

    options = {"betas": (B1, B2, b3), "alpha": alpha, "eps": EPS, "warmup_steps": warmup}
    assert_follows(descend(ademamix, START, given, **COMMON, **options), rule())


class Adam:
    """The moments of AdamW and its step, whose second moment may be the highest so far (AMSGrad)."""

    def __init__(self, *, amsgrad: bool) -> None:
        self.m, self.v, self.highest, self.amsgrad = *(torch.zeros(2, 3) for _ in range(3)), amsgrad

    def step(self, w: Tensor, g: Tensor, t: int, *, scale: float = 1.0) -> Tensor:
        self.m, self.v = B1 * self.m + (1 - B1) * g, B2 * self.v + (1 - B2) * g**2
        self.highest = torch.maximum(self.highest, self.v)
        v = self.highest if self.amsgrad else self.v
        update = self.m / (1 - B1**t) / ((v / (1 - B2**t)).sqrt() + EPS)
        return moved(w, update, rate=RATE * scale)


def test_adamwadv_is_adamw_with_amsgrad_and_a_clipped_norm(descend: Descend) -> None:
    given = gradients(8, spikes=(3,))

    def rule() -> Iterator[Tensor]:
        w, adam = START, Adam(amsgrad=True)
        for t, g in enumerate(given, 1):
            w = adam.step(w, g * min(1.0, 2.0 / (g.norm().item() + 1e-6)), t)
            yield w

    options = {"betas": (B1, B2), "eps": EPS, "clip_norm": 2.0}
    assert_follows(descend(adamwadv, START, given, **COMMON, **options), rule())


def rising(since: int, steps: int) -> float:
    """Half a cosine: 1/4 in the first of three steps after a reset, 3/4 in the second, then 1."""
    return (1 - math.cos(math.pi * min(since + 1, steps) / steps)) / 2


def spam_rises(since: int, steps: int) -> float:
    """The authors' CosineDecay(0.99, steps): 1 % of the rate in the step of a reset, all after `steps`."""
    return 1.0 if since >= steps else 1 - 0.99 * (1 + math.cos(math.pi * since / (steps + 1))) / 2


def test_spam_is_huangs(descend: Descend) -> None:
    """Algorithm 1, as in galore_torch/SPAM.py: steps count from 1, and the first is no reset for the rate.

    Reset every 6 steps, clip from the third after it and after the start, warm up over three.
    """
    assert [spam_rises(k, 3) for k in range(4)] == pytest.approx([0.01, 0.1549821, 0.505, 1])
    given, clipped = gradients(14, spikes=(2, 5, 9, 13)), list[int]()

    def rule() -> Iterator[Tensor]:
        w, adam = START, Adam(amsgrad=False)
        for t, g in enumerate(given, 1):
            since = t % 6
            if since == 0:
                adam.m, adam.v = adam.m * 0, adam.v * 0
            limit = (20 * adam.v).sqrt()
            spikes = (g.abs() > limit) & (since >= 3)
            if spikes.any():
                clipped.append(t)
            g = torch.where(spikes, g.sign() * limit, g)
            w = adam.step(w, g, t, scale=spam_rises(since, 3) if t >= 6 else 1.0)
            yield w

    options = {"betas": (B1, B2), "eps": EPS, "threshold": 20.0}
    windows = {"clip_after": 3, "reset_every": 6, "warmup_steps": 3}
    assert_follows(descend(spam, START, given, **COMMON, **options, **windows), rule())
    assert {2, 5, 9, 13} & set(clipped) == {5, 9}


@pytest.mark.parametrize(
    "optional",
    [{}, {"clip": True, "theta": 60.0}, {"reset_every": 40, "warmup_steps": 3}],
    ids=["plain", "clipped", "reset"],
)
def test_adamwspam_holds_back_after_a_spike(descend: Descend, optional: dict[str, Any]) -> None:
    """Over more steps than the history of 100 has, with a spike in step 50 and one in step 115.

    Clipping comes first, so that the norm is that of what is left (mcgrof/AdamWPrune, lib/optimizers.py,
    apply_spam_gradient_processing).
    """
    given = gradients(120, spikes=(50, 115))
    norms: list[float] = []
    found: list[int] = []

    def rule() -> Iterator[Tensor]:
        w, adam = START, Adam(amsgrad=True)
        for t, g in enumerate(given, 1):
            limit = (optional.get("theta", math.inf) * adam.v).sqrt()
            g = torch.where((adam.v > 0) & (g.abs() > limit), g.sign() * limit, g)
            norms.append(g.norm().item())
            seen = torch.tensor(norms[-100:], dtype=torch.float64)
            if norms[-1] - seen.mean() > 2 * seen.std(unbiased=False):
                found.append(t)
                adam.m, adam.v = adam.m * 0.5, adam.v * 0.9
            since = t % optional.get("reset_every", 1000)
            if since == 0:
                adam.m, adam.v = adam.m * 0, adam.v * 0
            scale = rising(since, 3) if t >= optional.get("reset_every", 1000) else 1.0
            w = adam.step(w, g, t, scale=scale)
            yield w

    options = {"betas": (B1, B2), "eps": EPS, "threshold": 2.0, **optional}
    assert_follows(descend(adamwspam, START, given, **COMMON, **options), rule())
    assert {50, 115} <= set(found)
    assert len(found) < 12


def test_rate_is_as_before_after_a_warm_up(descend: Descend) -> None:
    """It is scaled for one step only, so that who reads it from the groups sees the schedule's."""
    from .conftest import Weight

    model = Weight(START.tolist())
    optimizer = spam.build(
        model,
        spam.Options(
            **COMMON,
            betas=(B1, B2),
            eps=EPS,
            threshold=20.0,
            clip_after=3,
            reset_every=2,
            warmup_steps=50,
        ),
    )
    for _ in range(4):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
        assert [group["lr"] for group in optimizer.param_groups] == [RATE]
