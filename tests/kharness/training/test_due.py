"""When something is due: by steps, by epochs, or never."""

from __future__ import annotations

import pytest

from kharness.training.due import Every, few_validations, planned_steps
from kharness.training.errors import TrainingError


def test_every_says_which_epochs_are_due() -> None:
    assert [Every(epochs=2).is_due(5, epoch=epoch) for epoch in (1, 2, 3, 4, None)] == [
        *(False, True, False, True, False)
    ]
    assert [Every().is_due(5, epoch=epoch) for epoch in (1, 2)] == [False, False]


def test_steps_take_the_place_of_epochs() -> None:
    every = Every(epochs=1, steps=3)
    assert [every.is_due(step, epoch=step // 2) for step in range(1, 7)] == [*(False, False, True) * 2]
    assert [bool(some) for some in (every, Every(steps=1), Every(epochs=1), Every())] == [
        True,
        True,
        True,
        False,
    ]


PLAN = {"NUM_EPOCHS": 3, "MAX_STEPS": 0, "MAX_TOKENS": 0}


def steps(**symbols: int) -> int:
    return planned_steps({**PLAN, **symbols}, steps_per_epoch=10, tokens_per_step=64)


def test_a_training_ends_at_the_first_of_its_limits() -> None:
    assert [steps(), steps(MAX_STEPS=12), steps(MAX_STEPS=12, MAX_TOKENS=640), steps(MAX_TOKENS=5000)] == [
        *(30, 12, 10, 30)
    ]
    assert [steps(NUM_EPOCHS=0, MAX_TOKENS=6400 + 63), steps(MAX_TOKENS=1)] == [100, 1]
    with pytest.raises(TrainingError, match="nothing says how long to train"):
        steps(NUM_EPOCHS=0)


def note(num_steps: int, interval: int, *, first: bool) -> str:
    return few_validations(interval or 10, num_steps=num_steps, is_evaluated_first=first)


def test_a_plan_without_a_validation_curve_is_named() -> None:
    assert note(10, 0, first=False) == "1 validation point in 10 steps: no curve; lower EVAL_INTERVAL"
    assert note(10, 10, first=True) == (
        "EVAL_INTERVAL=10 is not below the 10 steps: validation before the first step and after the last only"
    )
    assert [note(11, 0, first=False), note(11, 10, first=True), note(3, 1, first=False)] == ["", "", ""]


def test_checkpoints_count_in_their_unit() -> None:
    assert Every.checkpoints(4, "steps") == Every(steps=4)
    assert Every.checkpoints(4, "epochs") == Every(epochs=4)
