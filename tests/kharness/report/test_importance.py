"""Importance of parameters, against SciPy's Kruskal-Wallis test."""

from __future__ import annotations

import random

import pytest
from scipy.stats import kruskal, rankdata

from kharness.report.importance import Importance, epsilon_squared, importances, ranks


@pytest.mark.parametrize("seed", range(5))
def test_the_share_is_that_of_kruskal_and_wallis(seed: int) -> None:
    draw = random.Random(seed)
    groups = [draw.choice("abc") for _ in range(30)]
    numbers = [round(draw.gauss(ord(group), 1), 1) for group in groups]  # some are tied
    of = [[number for number, own in zip(numbers, groups, strict=True) if own == group] for group in "abc"]
    statistic = kruskal(*of).statistic
    assert epsilon_squared(groups, numbers) == pytest.approx(max(0.0, (statistic - 2) / 27))


def test_ranks_are_those_of_scipy() -> None:
    numbers = [3.0, 1.0, 3.0, 2.0, 3.0, -1.0]
    assert ranks(numbers).tolist() == list(rankdata(numbers))


def test_what_decides_comes_first_and_says_which_way() -> None:
    values = [
        {"LEARNING_RATE": str(rate), "OPTIMIZER": name, "SEED_OF_NOTHING": "1"}
        for rate in (0.1, 0.2, 0.3, 0.4)
        for name in ("adam", "sgd")
    ]
    losses = [rate * 10 + (name == "sgd") / 10 for rate in (0.1, 0.2, 0.3, 0.4) for name in ("adam", "sgd")]
    assert importances(values, losses) == [
        Importance("LEARNING_RATE", (20 / 3 - 3) / 4, True, 4, 8),
        Importance("OPTIMIZER", 0.0, None, 2, 8),
        Importance("SEED_OF_NOTHING", None, None, 1, 8),
    ]


def test_a_parameter_without_effect_has_about_no_share() -> None:
    shares = []
    for seed in range(200):
        draw = random.Random(seed)
        [found] = importances(
            [{"X": str(draw.random())} for _ in range(40)], [draw.random() for _ in range(40)]
        )
        assert found.share is not None
        shares.append(found.share)
    assert sum(shares) / len(shares) < 0.05


def test_one_diverged_trial_decides_nothing() -> None:
    values = [{"X": str(one % 2)} for one in range(12)]
    losses = [float(one % 2) for one in range(12)]
    calm = importances(values, losses)
    assert importances(values, [*losses[:-1], 1e9])[0].share == pytest.approx(calm[0].share, abs=0.1)


def test_too_few_trials_say_nothing() -> None:
    assert importances([{"X": "1"}, {"X": "2"}], [1.0, 2.0]) == [Importance("X", None, None, 2, 2)]
    assert importances([], []) == []
