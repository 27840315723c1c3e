"""Against scipy's own tests, printed tables, published analyses and hand-worked numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from kharness.report.statistics import (
    MOST_SEEDS,
    Interval,
    group_size_needed,
    hedges_factor,
    holm,
    mean_interval,
    paired,
    pairs_needed,
    simultaneous_level,
    welch,
)

# Student, The probable error of a mean, Biometrika 6 (1908): hours of sleep gained with two drugs.
DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]

numbers = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 6))
levels = st.sampled_from([0.8, 0.9, 0.95, 0.99, 0.999])


def test_student_s_sleep_data_paired() -> None:
    """As R prints it for `t.test(Pair(extra.1, extra.2) ~ 1)`, help page sleep {datasets}."""
    found = paired(DRUG_1, DRUG_2)
    assert (found.mean, found.degrees) == (pytest.approx(-1.58), 9)
    assert found.p == pytest.approx(0.002833, abs=5e-7)
    interval = found.interval(0.95)
    assert interval is not None
    assert (interval.low, interval.high) == (
        pytest.approx(-2.4598858, abs=5e-8),
        pytest.approx(-0.7001142, abs=5e-8),
    )
    # t = -4.0621 over ten pairs: d_z = t/√10 = -1.2846, times Hedges' factor of nine degrees, 0.9139
    assert found.standardised == pytest.approx(-1.28456, abs=1e-5)
    assert found.effect == pytest.approx(-1.28456 * 0.9139, abs=1e-4)


def test_student_s_sleep_data_as_independent_groups() -> None:
    """As R prints it for `t.test(extra ~ group, data = sleep)`: t = -1.8608, df = 17.776, p = 0.07939."""
    found = welch(DRUG_1, DRUG_2)
    assert found.degrees == pytest.approx(17.776, abs=5e-4)
    assert found.p == pytest.approx(0.07939, abs=5e-6)
    interval = found.interval(0.95)
    assert interval is not None
    assert (interval.low, interval.high) == (
        pytest.approx(-3.3654832, abs=5e-8),
        pytest.approx(0.2054832, abs=5e-8),
    )


@given(st.lists(numbers, min_size=2, max_size=8), levels)
def test_interval_of_a_mean_is_scipy_s(values: Sequence[float], level: float) -> None:
    found = mean_interval(values, level)
    assume(found is not None)
    low, high = stats.t.interval(
        level, len(values) - 1, loc=sum(values) / len(values), scale=stats.sem(values)
    )
    assert found is not None
    assert (found.low, found.high) == (
        pytest.approx(low, rel=1e-6, abs=1e-6),
        pytest.approx(high, rel=1e-6, abs=1e-6),
    )


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8), levels)
def test_paired_difference_is_scipy_s(pairs: Sequence[tuple[float, float]], level: float) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    found = paired(first, second)
    differences = [a - b for a, b in pairs]
    assume(max(differences) - min(differences) > 1e-6 * max(map(abs, [*first, *second, 1e-3])))
    oracle = stats.ttest_rel(first, second)
    interval, expected = found.interval(level), oracle.confidence_interval(level)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-12)
    assert interval is not None
    assert (interval.low, interval.high) == (
        pytest.approx(expected.low, rel=1e-6, abs=1e-6),
        pytest.approx(expected.high, rel=1e-6, abs=1e-6),
    )


@given(st.lists(numbers, min_size=2, max_size=6), st.lists(numbers, min_size=2, max_size=6), levels)
def test_independent_groups_are_scipy_s(first: list[float], second: list[float], level: float) -> None:
    found = welch(first, second)
    for group in (first, second):  # scipy warns of a spread that is little more than rounding
        assume(max(group) - min(group) > 1e-6 * max(map(abs, group)))
    oracle = stats.ttest_ind(first, second, equal_var=False)
    interval, expected = found.interval(level), oracle.confidence_interval(level)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-12)
    assert interval is not None
    assert (interval.low, interval.high) == (
        pytest.approx(expected.low, rel=1e-6, abs=1e-6),
        pytest.approx(expected.high, rel=1e-6, abs=1e-6),
    )


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=6), levels)
def test_swapping_the_sides_turns_every_sign(pairs: list[tuple[float, float]], level: float) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    for compare in (paired, welch):
        there, back = compare(first, second), compare(second, first)
        assert back.mean == pytest.approx(-there.mean, abs=1e-9)
        assert back.p == there.p or back.p == pytest.approx(there.p)
        forth, reverse = there.interval(level), back.interval(level)
        assert (forth is None) == (reverse is None)
        if forth and reverse:
            assert reverse.low == pytest.approx(-forth.high, rel=1e-9, abs=1e-9)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=6), levels)
def test_an_interval_leaves_out_zero_exactly_when_p_is_small(
    pairs: list[tuple[float, float]], level: float
) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    for found in (paired(first, second), welch(first, second)):
        interval = found.interval(level)
        if interval is not None and found.p is not None:
            assume(abs(found.p - (1 - level)) > 1e-9)
            assert interval.excludes_zero == (found.p < 1 - level)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param([0.5], [0.25], id="one pair"),
        pytest.param([0.5, 0.75, 1.0], [0.5, 0.75, 1.0], id="all ties"),
        pytest.param([0.5, 0.75, 1.0], [0.25, 0.5, 0.75], id="the same difference everywhere"),
        pytest.param([0.8, 0.9, 0.7], [0.79, 0.89, 0.69], id="the same but for rounding"),
    ],
)
def test_pairs_without_spread_have_a_difference_and_nothing_else(
    first: list[float], second: list[float]
) -> None:
    found = paired(first, second)
    assert found.mean == pytest.approx(first[0] - second[0])
    assert (found.p, found.effect, found.interval(0.95)) == (None, None, None)


@pytest.mark.parametrize(
    ("first", "second"),
    [([0.5], [0.25, 0.5]), ([0.5, 0.75], [0.5]), ([0.5, 0.5], [0.25, 0.25]), ([1.0], [1.0])],
)
def test_groups_without_spread_have_a_difference_and_nothing_else(
    first: list[float], second: list[float]
) -> None:
    found = welch(first, second)
    assert found.mean == sum(first) / len(first) - sum(second) / len(second)
    assert (found.p, found.effect, found.interval(0.95)) == (None, None, None)


def test_one_group_without_spread_is_no_obstacle() -> None:
    """It is then a constant, and the other one is tested against that."""
    expected = stats.ttest_1samp([1.5, 2.0, 2.5], 1.0).pvalue
    assert welch([1.0, 1.0, 1.0], [1.5, 2.0, 2.5]).p == pytest.approx(expected)


def test_two_pairs_have_no_unbiased_effect_size() -> None:
    found = paired([1.0, 2.0], [0.0, 0.5])
    assert (found.standardised, found.effect) == (pytest.approx(1.25 / 0.125**0.5), None)


def test_no_values_have_no_interval() -> None:
    assert mean_interval([], 0.95) is None
    assert mean_interval([0.5], 0.95) is None


def test_hedges_factor_by_hand() -> None:
    """Γ(m/2) / (√(m/2) Γ((m-1)/2)), where Γ(1) = Γ(2) = 1, Γ(1/2) = √π and Γ(3/2) = √π/2."""
    assert hedges_factor(2) == pytest.approx(1 / math.sqrt(math.pi))
    assert hedges_factor(3) == pytest.approx(math.sqrt(math.pi / 6))
    assert hedges_factor(4) == pytest.approx(math.sqrt(2 / math.pi))


@pytest.mark.parametrize("degrees", [2, 3, 4, 9, 30, 998])
def test_hedges_factor_makes_the_expected_effect_the_true_one(degrees: int) -> None:
    """t of a true effect is noncentral, and its expectation is what the factor divides out."""
    assert hedges_factor(degrees) * stats.nct.mean(degrees, 1.5) == pytest.approx(1.5)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_bonferroni_test(ps: list[float]) -> None:
    """A hypothesis falls when every intersection with it falls: the largest |S|·min p over sets with it."""
    found = holm(ps)
    sets = [s for n in range(1, len(ps) + 1) for s in itertools.combinations(range(len(ps)), n)]
    expected = [min(1.0, max(len(s) * min(ps[j] for j in s) for s in sets if i in s)) for i in range(len(ps))]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("effect", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_pairs_needed_are_those_of_g_power(effect: float, pairs: int) -> None:
    """G*Power 3.1, means: difference between two dependent means, two-sided 5 %, power 80 %."""
    assert pairs_needed(effect, 0.95) == pairs


@pytest.mark.parametrize(("effect", "size"), [(0.2, 394), (0.5, 64), (0.8, 26), (1.0, 17)])
def test_group_sizes_needed_are_those_of_cohen_s_table(effect: float, size: int) -> None:
    """Cohen, Statistical Power Analysis (1988), table 2.4.1, two-sided 5 %; he rounds the first to 393."""
    assert group_size_needed(effect, 0.95) == size
    assert group_size_needed(3 * effect, 0.95, (3.0, 3.0)) == size
    # one that does not vary is a number, and the test that of one group
    assert group_size_needed(effect, 0.95, (1.0, 0.0)) == pairs_needed(effect, 0.95)


@given(st.floats(0.12, 20), levels)
@settings(max_examples=50)
def test_one_pair_fewer_would_not_do(effect: float, level: float) -> None:
    n = pairs_needed(effect, level)
    assume(n is not None)
    assert n is not None

    def power(n: int) -> float:
        t = stats.t.ppf((1 + level) / 2, n - 1)
        return float(stats.nct.sf(t, n - 1, effect * math.sqrt(n)))

    assert power(n) >= 0.8 - 1e-9
    assert n == 2 or power(n - 1) < 0.8 + 1e-9


@pytest.mark.parametrize("effect", [0.0, 1e-9, 0.01])
def test_differences_too_small_for_any_number_of_seeds(effect: float) -> None:
    assert pairs_needed(effect, 0.95) is None
    assert group_size_needed(effect, 0.95) is None


def test_the_search_ends_at_most_seeds() -> None:
    """d = 2.8016/√n for large n, so the largest effect out of reach is a little under 0.0886."""
    assert pairs_needed(0.0880, 0.95) is None
    assert pairs_needed(0.0892, 0.95) == pytest.approx(MOST_SEEDS, abs=15)


def test_intervals_of_several_comparisons_hold_at_once() -> None:
    """Three variants that are no better than the baseline, which all share: under 5 % of tables say so."""
    source = random.Random(1)
    level = simultaneous_level(0.95, 3)
    wrong = 0
    for _ in range(1500):
        baseline = [source.gauss(0, 1) for _ in range(5)]
        variants = [[source.gauss(0, 1) for _ in range(5)] for _ in range(3)]
        intervals = [paired(variant, baseline).interval(level) for variant in variants]
        wrong += any(interval.excludes_zero for interval in intervals if interval)
    assert level == pytest.approx(1 - 0.05 / 3)
    assert wrong / 1500 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1500)
    assert wrong > 0


def test_an_interval_that_touches_zero_holds_it() -> None:
    assert not Interval(0.0, 1.0, 0.95).excludes_zero
    assert not Interval(-1.0, 0.0, 0.95).excludes_zero
    assert Interval(0.1, 1.0, 0.95).excludes_zero
    assert Interval(-1.0, -0.1, 0.95).excludes_zero
