"""Schedules against torch's OneCycleLR and against the cosine worked by hand."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kharness.training.errors import TrainingError
from kharness.training.schedules import Schedule, set_learning_rate


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
        warnings.simplefilter("ignore")  # torch: step() of the scheduler without one of the optimiser
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


def test_warmup_steps_take_the_place_of_the_share() -> None:
    symbols = {"SCHEDULE": "cosine", "LEARNING_RATE": 1.0, "SCHEDULE_WARMUP_FRACTION": 0.5}
    schedule = Schedule.read({**symbols, "WARMUP_STEPS": 3}, num_steps=7)
    assert rates(schedule)[:4] == pytest.approx([1 / 3, 2 / 3, 1, 1])
    with pytest.raises(TrainingError, match="WARMUP_STEPS=7 is not below the 7 steps"):
        Schedule.read({**symbols, "WARMUP_STEPS": 7}, num_steps=7)


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
    symbols = {"SCHEDULE": "constant", "LEARNING_RATE": 0.5}
    assert Schedule.read(symbols, num_steps=3) == Schedule("constant", 0.5, 3, 0.0)


def test_unknown_schedule_lists_the_known() -> None:
    with pytest.raises(TrainingError, match="SCHEDULE=linear is not a known schedule") as caught:
        Schedule("linear", 0.1, 10)
    assert caught.value.hint == "known: constant, cosine, onecycle, stable"


def test_set_learning_rate_reaches_every_group() -> None:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(2)]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]
