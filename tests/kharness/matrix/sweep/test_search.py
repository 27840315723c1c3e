"""Searches propose settings without trainings: the loss is smallest at a learning rate of 0.01 with Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest

from kharness.matrix.sweep.ranges import Between, Listed, Range
from kharness.matrix.sweep.search import random_values, size, tpe_values, unseen
from kharness.matrix.sweep.validation import Objective, State, Trial

SPACE: list[Range] = [
    Between("LEARNING_RATE", "1e-8..1e4 log", Decimal("1e-8"), Decimal("1e4"), log=True, whole=False),
    Between("LAYERS", "1..9", Decimal(1), Decimal(9), log=False, whole=True),
    Listed("OPTIMIZER", "sgd|adam", ["sgd", "adam"], in_order=False),
    Listed("MOMENTUM", "0:0.1:0.9", [f"{n / 10:g}" for n in range(10)], in_order=True),
]
LOSS = Objective("val_loss", minimize=True)


def loss(values: dict[str, str]) -> float:
    return distance(values) ** 2 + (values["OPTIMIZER"] == "sgd")


def distance(values: dict[str, str]) -> float:
    """In orders of magnitude."""
    return abs(math.log10(float(values["LEARNING_RATE"])) + 2)


def ended(
    number: int, values: dict[str, str], state: State = "complete", losses: Sequence[float] = ()
) -> Trial:
    return Trial(f"trial-{number}", values, state, "", losses or [loss(values)])


def searched(count: int, *, after: Callable[[int, dict[str, str]], Trial] = ended) -> list[Trial]:
    trials: list[Trial] = []
    for number in range(1, count + 1):
        values = tpe_values(SPACE, trials, LOSS, seed=3, number=number)(0)
        trials.append(after(number, values))
    return trials


def test_tpe_comes_nearer_than_chance() -> None:
    distances = [distance(dict(trial.values)) for trial in searched(50)]
    assert sum(distances[30:]) / 20 < sum(distances[:10]) / 10 / 2


def test_tpe_makes_large_what_is_better_large() -> None:
    trials: list[Trial] = []
    for number in range(1, 41):
        values = tpe_values(SPACE, trials, Objective("val_accuracy", minimize=False), seed=3, number=number)(
            0
        )
        trials.append(ended(number, values, losses=[-loss(values)]))
    distances = [distance(dict(trial.values)) for trial in trials]
    assert sum(distances[30:]) / 10 < sum(distances[:10]) / 10 / 2


def test_a_proposal_depends_on_nothing_but_trials_seed_and_number() -> None:
    trials = searched(12)
    again = searched(12)
    assert [trial.values for trial in again] == [trial.values for trial in trials]
    one = tpe_values(SPACE, trials, LOSS, seed=3, number=13)
    assert one(0) == tpe_values(SPACE, again, LOSS, seed=3, number=13)(0)
    others = [one(1), tpe_values(SPACE, trials, LOSS, seed=4, number=13)(0)]
    assert one(0) not in others


def test_trials_that_failed_are_worse_than_every_complete_one() -> None:
    def fails_far_away(number: int, values: dict[str, str]) -> Trial:
        return ended(number, values) if distance(values) < 4 else ended(number, values, "failed", [math.nan])

    distances = [distance(dict(trial.values)) for trial in searched(50, after=fails_far_away)]
    assert sum(distances[30:]) / 20 < sum(distances[:10]) / 10 / 2


def test_open_and_stopped_trials_are_taken() -> None:
    trials = searched(12)
    trials[10] = ended(11, dict(trials[10].values), "open", [])
    trials[11] = ended(12, dict(trials[11].values), "stopped_early", [2.0, math.nan, 1.5])
    assert set(tpe_values(SPACE, trials, LOSS, seed=1, number=13)(0)) == {one.symbol for one in SPACE}


def test_random_values_lie_in_the_space_and_come_back_as_the_same_numbers() -> None:
    drawn = [random_values(SPACE, seed=1, number=number)(0) for number in range(200)]
    rates = [float(values["LEARNING_RATE"]) for values in drawn]
    assert min(rates) >= 1e-8
    assert max(rates) <= 1e4
    assert sum(rate < 1e-2 for rate in rates) / 200 == pytest.approx(0.5, abs=0.1)
    assert {values["LAYERS"] for values in drawn} == {str(n) for n in range(1, 10)}
    assert {values["OPTIMIZER"] for values in drawn} == {"sgd", "adam"}
    momentum = SPACE[3]
    assert isinstance(momentum, Listed)
    assert {values["MOMENTUM"] for values in drawn} == set(momentum.values)
    assert all(repr(float(values["LEARNING_RATE"])) == values["LEARNING_RATE"] for values in drawn)


def test_what_was_seen_is_not_proposed_again() -> None:
    small = [SPACE[2]]
    seen: set[tuple[str, ...]] = {("sgd",)}
    assert list(unseen(random_values(small, seed=1, number=1), seen)) == [{"OPTIMIZER": "adam"}]
    assert list(unseen(random_values(small, seed=1, number=1), seen)) == []


def test_the_size_of_a_space() -> None:
    assert (size(SPACE), size(SPACE[1:])) == (math.inf, 9 * 2 * 10)
