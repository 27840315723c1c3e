"""Ranges of ranks, worked by hand with quantiles of printed tables, and held against a simulation."""

from __future__ import annotations

import random
import statistics

import pytest

from kharness.matrix.sweep.rank_errors import Measured, rank_ranges

BUDGET = (5400,)


def accuracies(*counts: int, of: int = 100, budget: tuple[int, ...] = BUDGET) -> list[Measured]:
    return [Measured([count / of], budget, of) for count in counts]


def test_accuracies_differ_beyond_the_error_of_their_set() -> None:
    """Accuracies on 100 images are compared by the binomial error of their set.

    (x + 1)/102 is 0.892, 0.794, 0.696; errors 0.0307, 0.0400, 0.0455. z of 1 - 0.05/6 is 2.394 (three pairs).
    0.9 and 0.7 differ by 0.2 > 2.394 · 0.0549 = 0.131; 0.9 and 0.8 by 0.1 < 0.121; 0.8, 0.7 by 0.1 < 0.145.
    """
    found = rank_ranges(accuracies(90, 80, 70), minimize=False)
    assert found is not None
    assert (found.ranges, found.method) == ([(1, 2), (1, 3), (2, 3)], "binomial error of the validation set")


def test_a_perfect_accuracy_has_an_error_too() -> None:
    found = rank_ranges(accuracies(5, 4, of=5), minimize=False)
    assert found is not None
    assert found.ranges == [(1, 2), (1, 2)]


def test_seeds_give_the_error_of_a_loss() -> None:
    """Deviations 0.1 in each of three rows of three seeds: 6 degrees, t of 1 - 0.05/6 is 3.287.

    Differences above 3.287 · 0.1 · √(2/3) = 0.268 are shown by the pooled deviation, and those above
    4.604 · 0.1 · √(2/3) = 0.376 by two rows' own, of 4 degrees: 1.0 from 1.4 and 1.6, not 1.4 from 1.6.
    """
    rows = [Measured([mean - 0.1, mean, mean + 0.1], BUDGET) for mean in (1.0, 1.4, 1.6)]
    found = rank_ranges(rows, minimize=True)
    assert found is not None
    assert found.ranges == [(1, 1), (2, 3), (2, 3)]
    assert found.method == "t tests with the deviation between seeds, pooled"


def test_seeds_of_accuracies_know_their_set_too() -> None:
    """Deviations of 0.0001 leave the set's error: of 1,000 samples 3.6 separate no rows, and 4.1 do.

    z of 1 - 0.05/2 is 1.960, and a lead d is shown if d > 1.96 √(d(1-d)/1000), which is above 0.0038.
    """
    for lead, ranges in ((0.0036, [(1, 2), (1, 2)]), (0.0041, [(1, 1), (2, 2)])):
        rows = [
            Measured([mean - 0.0001, mean, mean + 0.0001], BUDGET, samples)
            for mean, samples in ((0.9 + lead, 1000), (0.9, 1000))
        ]
        found = rank_ranges(rows, minimize=False)
        assert found is not None
        assert found.ranges == ranges
        assert found.method.endswith("pooled, and the least error of the validation set")


@pytest.mark.parametrize("budgets", [[(43,), (169,)], [(), ()]])
def test_other_or_unknown_budgets_show_nothing(budgets: list[tuple[int, ...]]) -> None:
    rows = [accuracies(count, budget=budget)[0] for count, budget in zip((99, 1), budgets, strict=True)]
    found = rank_ranges(rows, minimize=False)
    assert found is not None
    assert found.ranges == [(1, 2), (1, 2)]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [Measured([0.5], BUDGET, 100)],
        [Measured([0.5], BUDGET), Measured([0.6], BUDGET)],
        [Measured([0.5], BUDGET, 100), Measured([0.6], BUDGET)],
        [Measured([0.5, 0.5], BUDGET, 100), Measured([0.6], BUDGET, 100)],
    ],
)
def test_what_nobody_knows_is_unknown(rows: list[Measured]) -> None:
    assert rank_ranges(rows, minimize=False) is None


def test_equal_rows_are_seldom_told_apart() -> None:
    """At most 5 % of 400 leaderboards of 6 equal rows of 3 seeds rank any row: 20, or 35 by bad luck.

    The binomial distribution of 400 and 0.05 is above 35 with a probability below 0.001.
    """
    chance = random.Random(1)
    false = 0
    for _ in range(400):
        rows = [Measured([chance.gauss(0, 1) for _ in range(3)], BUDGET) for _ in range(6)]
        rows.sort(key=lambda row: statistics.fmean(row.values))
        found = rank_ranges(rows, minimize=True)
        assert found is not None
        false += any(span != (1, 6) for span in found.ranges)
    assert false <= 35


@pytest.mark.parametrize("spreads", [(5,), (3,) * 10], ids=["one of twenty", "half of them"])
def test_rows_that_vary_more_do_not_make_ranks(spreads: tuple[int, ...]) -> None:
    """Unequal variances make no ranks in 200 leaderboards of 20 rows of 3 seeds that have the same mean.

    With a deviation pooled without a test a quarter shows ranks with one such row, and an eighth with ten;
    the binomial distribution of 200 and 0.05 is above 20 with a probability of 0.001.
    """
    chance = random.Random(2)
    false = 0
    for _ in range(200):
        wide = [*spreads, *[1] * (20 - len(spreads))]
        rows = [Measured([chance.gauss(0, by) for _ in range(3)], BUDGET) for by in wide]
        found = rank_ranges(rows, minimize=True)
        assert found is not None
        false += any(span != (1, 20) for span in found.ranges)
    assert false <= 20


def test_a_wild_row_is_set_aside_and_said() -> None:
    """The F test (1 against 0.0001) excludes a row from the pooled variance; its pairs use its own."""
    values = [[mean - 0.01, mean, mean + 0.01] for mean in (1.0, 1.2, 1.4, 1.6)]
    found = rank_ranges([Measured(row, BUDGET) for row in [*values, [0.0, 1.0, 2.9]]], minimize=True)
    assert found is not None
    assert [span[0] for span in found.ranges[:4]] == [1, 2, 3, 4]
    assert found.ranges[4] == (1, 5)
    assert found.method.endswith("pooled but for 1 of 5 that do not vary alike")


def test_a_row_of_a_single_seed_is_not_ranked_by_the_spread_of_others() -> None:
    rows = [Measured([mean, mean + 0.01, mean - 0.02], BUDGET) for mean in (1.0, 2.0)]
    found = rank_ranges([*rows, Measured([9.0], BUDGET)], minimize=True)
    assert found is not None
    assert found.ranges == [(1, 2), (2, 3), (1, 3)]
