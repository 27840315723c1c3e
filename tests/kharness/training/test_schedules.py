"""Schedules against torch's OneCycleLR and against the cosine worked by hand."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kharness.training.errors import TrainingError
from kharness.training.schedules import OptionSchedules, Schedule, set_learning_rate


def rates(schedule: Schedule) -> list[float]:
    return [schedule(step) for step in range(schedule.num_steps)]


@pytest.mark.parametrize(("num_steps", "warmup"), [(10, 0.3), (100, 0.25), (1275, 0.3), (7, 0.5), (20, 0.0)])
def test_onecycle_is_torchs(num_steps: int, warmup: float) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    oracle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.05, total_steps=num_steps, pct_start=warmup, cycle_momentum=False
    )
    expected = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: step() of the scheduler without one of the optimizer
        for _ in range(num_steps):
            expected.append(oracle.get_last_lr()[0])
            if len(expected) < num_steps:
                oracle.step()
    assert rates(Schedule("onecycle", 0.05, num_steps, warmup)) == pytest.approx(expected, rel=1e-12)


def test_cosine_warms_up_linearly_and_ends_near_zero() -> None:
    # 8 steps, a quarter of them warm-up: 1/2 and 1 of the peak, then half a cosine over 6 steps
    falling = [0.4 * (1 + math.cos(math.pi * k / 6)) / 2 for k in range(6)]
    assert rates(Schedule("cosine", 0.4, 8, 0.25)) == pytest.approx([0.2, 0.4, *falling])
    assert falling == pytest.approx([0.4, 0.373205, 0.3, 0.2, 0.1, 0.026795], abs=1e-6)


def test_cosine_ends_at_the_share_of_the_peak_that_is_wanted() -> None:
    falling = [0.04 + 0.36 * (1 + math.cos(math.pi * k / 6)) / 2 for k in range(6)]
    assert rates(Schedule("cosine", 0.4, 8, 0.25, final=0.1)) == pytest.approx([0.2, 0.4, *falling])


def test_stable_is_level_between_a_linear_rise_and_a_linear_fall() -> None:
    # 10 steps: 2 of warm-up, 4 level, 4 falling, the first of them still at the peak
    schedule = Schedule("stable", 0.8, 10, 0.2, decay_fraction=0.4)
    assert rates(schedule) == pytest.approx([0.4, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.6, 0.4, 0.2])
    assert rates(Schedule("stable", 0.8, 4, 0.0, 1.0, final=0.5)) == pytest.approx([0.8, 0.7, 0.6, 0.5])


def options(**asked: object) -> Any:
    """Those of other schedules are None."""
    names = ("WARMUP_STEPS", "SCHEDULE_WARMUP_FRACTION", "SCHEDULE_DECAY_FRACTION", "SCHEDULE_FINAL")
    return SimpleNamespace(**{**dict.fromkeys(names), **asked})


def test_warmup_steps_take_the_place_of_the_share() -> None:
    asked = {"SCHEDULE": "cosine", "LEARNING_RATE": 1.0, "SCHEDULE_WARMUP_FRACTION": 0.5}
    schedule = Schedule.read(options(**asked, WARMUP_STEPS=3), num_steps=7)
    assert rates(schedule)[:4] == pytest.approx([1 / 3, 2 / 3, 1, 1])
    with pytest.raises(TrainingError, match="WARMUP_STEPS=7 is not below the 7 steps"):
        Schedule.read(options(**asked, WARMUP_STEPS=7), num_steps=7)


def test_constant_stays() -> None:
    assert rates(Schedule("constant", 0.003, 4)) == [0.003] * 4


@given(
    name=st.sampled_from(["constant", "cosine", "onecycle", "stable"]),
    num_steps=st.integers(1, 500),
    warmup=st.floats(0, 0.999),
)
def test_no_rate_leaves_zero_to_peak(name: str, num_steps: int, warmup: float) -> None:
    assert all(0 <= rate <= 1 + 1e-12 for rate in rates(Schedule(name, 1.0, num_steps, warmup)))


def test_read_without_a_warmup_symbol() -> None:
    asked = options(SCHEDULE="constant", LEARNING_RATE=0.5)
    assert Schedule.read(asked, num_steps=3) == Schedule("constant", 0.5, 3, 0.0)


def test_unknown_schedule_lists_the_known() -> None:
    with pytest.raises(TrainingError, match="SCHEDULE=linear is not a known schedule") as caught:
        Schedule("linear", 0.1, 10)
    assert caught.value.hint == "known: constant, cosine, onecycle, stable"


def test_set_learning_rate_reaches_every_group() -> None:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(2)]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def two_groups() -> torch.optim.Optimizer:
    weight, bias = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    return torch.optim.AdamW(
        [{"params": [weight], "weight_decay": 0.1}, {"params": [bias], "weight_decay": 0.0}], lr=0.1
    )


def test_options_move_along_lines_in_the_groups_that_have_them() -> None:
    """In 10 steps beta1 moves in steps 2 to 4, the decay in the second half; groups without decay keep 0."""
    optimizer = two_groups()
    text = "beta1=0.5..0.9@2..4 weight_decay=0.1..0@50%..100%"
    schedules = OptionSchedules(text, optimizer, num_steps=10)
    found = [schedules.set(step) for step in (0, 2, 3, 4, 5, 6, 9)]
    assert [one["beta1"] for one in found] == pytest.approx([0.5, 0.5, 0.7, 0.9, 0.9, 0.9, 0.9])
    assert [one["weight_decay"] for one in found] == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.1, 0.08, 0.02])
    assert [group["betas"] for group in optimizer.param_groups] == [(0.9, 0.999)] * 2
    assert [group["weight_decay"] for group in optimizer.param_groups] == [pytest.approx(0.02), 0.0]


def test_no_options_move_by_default() -> None:
    assert OptionSchedules("", two_groups(), num_steps=10).set(3) == {}


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        (
            "momentum=0.8..0.9@0..3",
            "SCHEDULE_OPTIONS: this optimizer has no momentum",
            "it has: beta1, beta2,",
        ),
        (
            "rate=0.8..0.9@0..3",
            "SCHEDULE_OPTIONS: 'rate=0.8..0.9@0..3' is not NAME=FROM",
            "NAME is one of mom",
        ),
        ("beta1=0.8", "SCHEDULE_OPTIONS: 'beta1=0.8' is not NAME=FROM..TO@FIRST..LAST", "NAME is one of mom"),
        ("beta1=0.8..1@9..3", "SCHEDULE_OPTIONS: 'beta1=0.8..1@9..3' ends before", "write the earlier step"),
    ],
)
def test_option_schedules_that_cannot_be_are_refused(text: str, error: str, hint: str) -> None:
    with pytest.raises(TrainingError) as caught:
        OptionSchedules(text, two_groups(), num_steps=10)
    assert str(caught.value).startswith(error)
    assert str(caught.value.hint).startswith(hint)
