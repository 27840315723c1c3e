"""Against scipy's own tests, printed tables, published analyses and hand-worked numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy
from hypothesis import assume, given
from hypothesis import strategies as st

from kharness.report.judging.statistics import (
    Interval,
    estimated_deviations,
    hedges_factor,
    holm,
    largest_t,
    largest_t_p,
    mean_interval,
    mean_square_p,
    normal_p,
    normal_quantile,
    paired,
    sd_range,
    t_p,
    welch,
)

# Student, The probable error of a mean, Biometrika 6 (1908): hours of sleep gained with two drugs.
DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]

numbers = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 6))
levels = st.sampled_from([0.8, 0.9, 0.95, 0.99, 0.999])


def test_student_s_sleep_data_paired() -> None:
    """R prints these values for `t.test(Pair(extra.1, extra.2) ~ 1)`, help page sleep {datasets}."""
    found = paired(DRUG_1, DRUG_2)
    assert found.mean == pytest.approx(-1.58)
    assert found.degrees == 9
    assert found.p == pytest.approx(0.002833, abs=5e-7)
    interval = found.interval(0.95)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((-2.4598858, -0.7001142), abs=5e-8)
    # t = -4.0621 over ten pairs: d_z = t/√10 = -1.2846, times Hedges' factor of nine degrees, 0.9139
    assert found.effect == pytest.approx(-1.28456 * 0.9139, abs=1e-4)


def test_student_s_sleep_data_as_independent_groups() -> None:
    """R prints these for `t.test(extra ~ group, data = sleep)`: t = -1.8608, df = 17.776, p = 0.07939."""
    found = welch(DRUG_1, DRUG_2)
    assert found.degrees == pytest.approx(17.776, abs=5e-4)
    assert found.p == pytest.approx(0.07939, abs=5e-6)
    interval = found.interval(0.95)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((-3.3654832, 0.2054832), abs=5e-8)


@given(st.lists(numbers, min_size=2, max_size=8), levels)
def test_interval_of_a_mean_is_scipy_s(values: Sequence[float], level: float) -> None:
    found = mean_interval(values, level)
    assume(found is not None)
    low, high = scipy.stats.t.interval(
        level, len(values) - 1, loc=sum(values) / len(values), scale=scipy.stats.sem(values)
    )
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8), levels)
def test_paired_difference_is_scipy_s(pairs: Sequence[tuple[float, float]], level: float) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    found = paired(first, second)
    differences = [a - b for a, b in pairs]
    assume(max(differences) - min(differences) > 1e-6 * max(map(abs, [*first, *second, 1e-3])))
    oracle = scipy.stats.ttest_rel(first, second)
    interval, expected = found.interval(level), oracle.confidence_interval(level)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-12)
    assert interval is not None
    bounds = pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)
    assert (interval.low, interval.high) == bounds


@given(st.lists(numbers, min_size=2, max_size=6), st.lists(numbers, min_size=2, max_size=6), levels)
def test_independent_groups_are_scipy_s(first: list[float], second: list[float], level: float) -> None:
    found = welch(first, second)
    for group in (first, second):  # scipy warns of a spread that is little more than rounding
        assume(max(group) - min(group) > 1e-6 * max(map(abs, group)))
    oracle = scipy.stats.ttest_ind(first, second, equal_var=False)
    interval, expected = found.interval(level), oracle.confidence_interval(level)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-12)
    assert interval is not None
    bounds = pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)
    assert (interval.low, interval.high) == bounds


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
    expected = scipy.stats.ttest_1samp([1.5, 2.0, 2.5], 1.0).pvalue
    assert welch([1.0, 1.0, 1.0], [1.5, 2.0, 2.5]).p == pytest.approx(expected)


def test_two_pairs_have_no_unbiased_effect_size() -> None:
    assert paired([1.0, 2.0], [0.0, 0.5]).effect is None


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
    assert hedges_factor(degrees) * scipy.stats.nct.mean(degrees, 1.5) == pytest.approx(1.5)


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


@pytest.mark.parametrize(
    ("degrees", "row"),
    [
        (5, [2.57, 3.03, 3.29, 3.48, 3.62, 3.73, 3.82, 3.90, 3.97]),
        (10, [2.23, 2.57, 2.76, 2.89, 2.99, 3.07, 3.14, 3.19, 3.24]),
        (20, [2.09, 2.38, 2.54, 2.65, 2.73, 2.80, 2.86, 2.90, 2.95]),
        (60, [2.00, 2.27, 2.41, 2.51, 2.58, 2.64, 2.69, 2.73, 2.77]),
    ],
)
def test_the_largest_of_several_t_is_dunnett_s_table(degrees: int, row: list[float]) -> None:
    """Dunnett, New tables for multiple comparisons with a control, Biometrics 20 (1964): two-sided 5 %."""
    assert [largest_t(p, degrees, 0.05) for p in range(1, 10)] == pytest.approx(row, abs=0.0051)


@pytest.mark.parametrize(("t", "comparisons", "degrees", "correlation"), [(2.0, 3, 7, 0.5), (3.1, 5, 4, 0.8)])
def test_the_largest_of_several_t_is_scipy_s_multivariate_t(
    t: float, comparisons: int, degrees: int, correlation: float
) -> None:
    shape = np.full((comparisons, comparisons), correlation) + (1 - correlation) * np.eye(comparisons)
    oracle = scipy.stats.multivariate_t(shape=shape, df=degrees, seed=1)
    inside = oracle.cdf([t] * comparisons, lower_limit=[-t] * comparisons)
    found = largest_t_p(t, comparisons, degrees, correlation=correlation)
    assert found == pytest.approx(1 - inside, abs=3e-3)


@pytest.mark.parametrize("alpha", [0.05, 0.0025, 1e-5])
def test_a_critical_value_has_its_alpha(alpha: float) -> None:
    for comparisons, degrees in ((2, 3), (9, 36), (100, 400)):
        t = largest_t(comparisons, degrees, alpha)
        assert largest_t_p(t, comparisons, degrees) == pytest.approx(alpha, rel=1e-6)
        # one is not as strict, and Bonferroni's inequality is stricter
        assert (
            scipy.stats.t.ppf(1 - alpha / 2, degrees)
            < t
            < scipy.stats.t.ppf(1 - alpha / 2 / comparisons, degrees)
        )


def test_a_critical_value_errs_on_the_safe_side() -> None:
    """Degrees are rounded down to two digits, and a correlation to twentieths."""
    assert largest_t(4, 7.49, 0.05, correlation=0.67) == largest_t(4, 7.4, 0.05, correlation=0.65)
    assert largest_t(4, 7.4, 0.05) > largest_t(4, 7.5, 0.05)
    assert largest_t(4, 7.4, 0.05, correlation=0.65) > largest_t(4, 7.4, 0.05, correlation=0.7)


@pytest.mark.parametrize("degrees", [1, 2.5, 30])
def test_estimated_deviations_stand_for_equal_parts_of_chi(degrees: float) -> None:
    expected = scipy.stats.chi(degrees).ppf([0.125, 0.375, 0.625, 0.875]) / math.sqrt(degrees)
    assert estimated_deviations(degrees, 4) == pytest.approx(expected)


def test_the_range_of_a_deviation_is_that_of_chi_square() -> None:
    bounds = [math.sqrt(9 / scipy.stats.chi2.ppf(quantile, 9)) for quantile in (0.975, 0.025)]
    assert list(sd_range(9, 0.95)) == pytest.approx(bounds)


def test_p_values_are_scipy_s() -> None:
    assert mean_square_p(3.2, 4, 16, 16) == pytest.approx(scipy.stats.f.sf(3.2, 4, 16))
    assert normal_p(-1.96) == pytest.approx(2 * scipy.stats.norm.sf(1.96))
    assert normal_quantile(0.05) == pytest.approx(scipy.stats.norm.ppf(0.975))
    assert t_p(2.1, 6.5) == pytest.approx(2 * scipy.stats.t.sf(2.1, 6.5))


def test_an_interval_that_touches_zero_holds_it() -> None:
    assert not Interval(0.0, 1.0, 0.95).excludes_zero
    assert not Interval(-1.0, 0.0, 0.95).excludes_zero
    assert Interval(0.1, 1.0, 0.95).excludes_zero
    assert Interval(-1.0, -0.1, 0.95).excludes_zero
