"""Whose error a comparison is judged by: textbook formulas, and tables that are made to vary."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kharness.report.judging import blocks
from kharness.report.judging.blocks import (
    SET_ASIDE_LEVEL,
    _own_variances,
    _vary_unlike,
    contrasts,
    residual_deviation,
)
from kharness.report.judging.evidence import Spending, of_contrast
from kharness.report.judging.interim_looks import Looks

numbers = st.floats(-10, 10).map(lambda x: round(x, 3))


def table(k: int, n: int, sds: Sequence[float], seed: int = 0) -> np.ndarray:
    """Standardized noise with exactly these deviations, and an effect of the seed."""
    noise = np.random.default_rng(seed).normal(size=(k, n))
    noise -= noise.mean(axis=1, keepdims=True)
    noise *= np.asarray(sds)[:, None] / noise.std(axis=1, ddof=1, keepdims=True)
    return noise + 5 * np.arange(n)


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=8))
def test_a_single_comparison_is_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    (found,) = contrasts([second, first])
    differences = np.subtract(first, second)
    assert (found.method, found.degrees) == ("paired", len(pairs) - 1)
    assert found.mean == pytest.approx(differences.mean(), abs=1e-12)
    assert found.variance == pytest.approx(differences.var(ddof=1), rel=1e-9, abs=1e-9)


def test_variants_that_vary_alike_share_the_residual_of_a_two_way_analysis() -> None:
    """Its mean square is that of the interaction, as in every textbook of the randomized block design."""
    values = table(6, 5, [1] * 6, seed=3)
    found = contrasts(values.tolist())
    grand, rows, columns = values.mean(), values.mean(axis=1), values.mean(axis=0)
    total = ((values - grand) ** 2).sum()
    mean_square = (total - 5 * ((rows - grand) ** 2).sum() - 6 * ((columns - grand) ** 2).sum()) / 20
    assert {one.method for one in found} == {"blocked"}
    assert [one.degrees for one in found] == [20] * 5
    assert [one.standard_error for one in found] == pytest.approx([math.sqrt(2 * mean_square / 5)] * 5)
    assert [one.correlation for one in found] == [0.5] * 5


def test_what_a_seed_does_to_all_variants_changes_nothing() -> None:
    values = table(4, 5, [1, 1, 1, 1])
    moved = values + np.array([3, -100, 7, 0, 12])
    for one, other in zip(contrasts(values.tolist()), contrasts(moved.tolist()), strict=True):
        assert one.method == other.method
        assert (one.mean, one.variance) == pytest.approx((other.mean, other.variance))


def test_a_baseline_that_varies_more_is_taken_apart() -> None:
    """Its variance as of the baseline less the mean of the others, and theirs from their own residual."""
    values = table(6, 5, [4, 1, 1, 1, 1, 1])
    found = contrasts(values.tolist())
    assert {one.method for one in found} == {"baseline_apart"}
    others = values[1:]
    alone = (values[0] - others.mean(axis=0)).var(ddof=1)  # its own, and a fifth of another's
    rest = others - others.mean(axis=0) - others.mean(axis=1, keepdims=True) + others.mean()
    square = (rest**2).sum() / 16
    assert found[0].variance == pytest.approx(alone + 0.8 * square)
    degrees = (alone + 0.8 * square) ** 2 / (alone**2 / 4 + (0.8 * square) ** 2 / 16)
    assert found[0].degrees == pytest.approx(degrees)
    assert found[0].correlation == pytest.approx(min(0.94, (alone - 0.2 * square) / (alone + 0.8 * square)))


WILD = [1, 1, 1, 10, 1, 1, 1]


def test_a_variant_that_varies_far_more_leaves_the_others_as_they_are_without_it() -> None:
    values = table(7, 5, WILD)
    found = contrasts(values.tolist())
    wild = found.pop(2)
    without = contrasts(np.delete(values, 3, axis=0).tolist())
    assert [(one.method, one.together, one.set_aside) for one in found] == [("blocked", 5, (2,))] * 5
    assert [(one.mean, one.variance, one.degrees, one.own_variance) for one in found] == [
        (one.mean, one.variance, one.degrees, one.own_variance) for one in without
    ]
    assert (wild.method, wild.together, wild.degrees) == ("variant_apart", 1, 4)
    t = scipy.stats.ttest_rel(values[3], values[0])
    assert wild.mean / wild.standard_error == pytest.approx(t.statistic)


def test_what_variants_apart_leave_of_the_error_is_three_quarters_in_all() -> None:
    for sds, spent in ((WILD, 0.75), ([1] * 7, 1)):
        found = contrasts(table(7, 5, sds).tolist())
        assert sum(one.share / one.together for one in found) == pytest.approx(spent)


def test_variants_are_set_aside_one_after_another_and_the_baseline_is_not() -> None:
    found = contrasts(table(9, 5, [10, 1, 10, 1, 1, 1, 100, 1, 1]).tolist())
    assert [i for i, one in enumerate(found) if one.method == "variant_apart"] == [1, 5]
    assert {one.set_aside for one in found} == {(1, 5)}
    assert {found[i].method for i in (0, 2, 3, 4, 6, 7)} == {"baseline_apart"}


@pytest.mark.parametrize("constant", ["SET_ASIDE_LEVEL", "OWN_PAIRS_LEVEL"])
def test_whether_a_variant_varies_more_is_an_f_test(constant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The F test sets a variant less the mean of the other four against their two-way residual."""
    values = table(6, 5, [1, 1, 1, 2.2, 1, 1], seed=2)
    others = np.delete(values, [0, 3], axis=0)
    rest = others - others.mean(axis=0) - others.mean(axis=1, keepdims=True) + others.mean()
    ratio = (values[3] - others.mean(axis=0)).var(ddof=1) * 4 / 5 / ((rest**2).sum() / 12)
    p = float(scipy.stats.f.sf(ratio, 4, 12))
    family = 5 if constant == "SET_ASIDE_LEVEL" else 1
    monkeypatch.setattr(blocks, "VARIANTS_LEVEL", 0)
    monkeypatch.setattr(blocks, "ALIKE_LEVEL", 0)
    monkeypatch.setattr(blocks, "OWN_PAIRS_LEVEL", 0)
    for level, apart in ((p * family * 1.001, True), (p * family * 0.999, False)):
        monkeypatch.setattr(blocks, constant, level)
        found = contrasts(values.tolist())
        assert [one.method == "variant_apart" for one in found] == [False, False, apart, False, False]
        aside = apart and constant == "SET_ASIDE_LEVEL"
        assert {one.set_aside for one in found} == {(2,) if aside else ()}


def test_a_variant_of_the_pool_that_varies_more_is_judged_by_its_own_pairs() -> None:
    """It stays in the pool, whose error grows by it, so that the others lose nothing they could rely on."""
    values = table(7, 5, [1, 1, 1, 2.2, 1, 1, 1])
    found = contrasts(values.tolist())
    assert [one.method for one in found] == ["blocked", "blocked", "variant_apart", *["blocked"] * 3]
    assert (found[2].variance, found[2].degrees) == (found[2].own_variance, 4)
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    assert found[0].variance == pytest.approx(2 * (rest**2).sum() / 24)
    assert [one.together for one in found] == [5, 5, 1, 5, 5, 5]


def test_a_deviation_is_found_without_a_variant_that_varies_far_more() -> None:
    values = table(7, 5, WILD)
    without = np.delete(values, 3, axis=0).tolist()
    assert residual_deviation(values.tolist()) == residual_deviation(without)


@pytest.mark.parametrize(
    ("sds", "n", "wild"),
    [
        pytest.param([1, 1, 5, 1, 1, 1], 4, [2], id="too few seeds to set one aside"),
        pytest.param([5, 1, 5, 1, 1, 1], 4, [2], id="the same, and the baseline varies more"),
        pytest.param([1, 1, 1, 1, 1, 1, 6, 6], 4, [6, 7], id="two that hide one another"),
        pytest.param([1, 3, 1, 3, 1, 3, 1, 3], 8, [], id="half of them"),
    ],
)
def test_where_variants_vary_unlike_each_has_a_variance_of_its_own(
    sds: list[float], n: int, wild: list[int]
) -> None:
    """Welch's degrees of freedom for two variances, each beside the mean of the other variants that are not
    wild; these have their own pairs.
    """
    values = table(len(sds), n, sds)
    found = contrasts(values.tolist())
    assert [one.method == "variant_apart" for one in found] == [i in wild for i in range(1, len(sds))]
    quiet = np.delete(values, wild, axis=0)
    k = len(quiet)
    beside = [row - np.delete(quiet, i, axis=0).mean(axis=0) for i, row in enumerate(quiet)]
    base, *others = [row.var(ddof=1) * (k - 1) / k for row in beside]
    apart = [one for one in found if one.method == "each_apart"]
    assert [one.variance for one in apart] == pytest.approx([base + other for other in others])
    degrees = [(base + other) ** 2 / (base**2 / (n - 1) + other**2 / (n - 1)) for other in others]
    assert [one.degrees for one in apart] == pytest.approx(degrees)
    for i in wild:
        own = (values[i] - values[0]).var(ddof=1)
        assert (found[i - 1].variance, found[i - 1].degrees) == pytest.approx((own, n - 1))


@pytest.mark.parametrize(("k", "wild"), [(4, [3]), (6, [4, 5]), (8, [5, 6, 7])])
def test_wild_variants_leave_the_interval_of_an_innocent_pair_near_what_it_is_without_them(
    k: int, wild: list[int]
) -> None:
    """Over 200 matrices of five seeds, as the median ratio of standard errors times critical values.

    Nearly half of the variants vary 20 times as much. What is left to pay is the number of comparisons.
    """
    rng, ratios = np.random.default_rng(k), []
    for _ in range(200):
        values = rng.normal(size=(k, 5))
        values[wild] *= 20
        beside = of_contrast(contrasts(values.tolist())[0], _spending(1), is_last=False)
        without = contrasts(np.delete(values, wild, axis=0).tolist())[0]
        alone = of_contrast(without, _spending(1), is_last=False)
        assert beside.interval is not None
        assert alone.interval is not None
        ratios.append(
            (beside.interval.high - beside.interval.low) / (alone.interval.high - alone.interval.low)
        )
    assert 1 <= np.median(ratios) < 1.5


def _spending(part: float) -> Spending:
    return Spending(0.05, part, 5, {5: 1.0})


def test_nothing_is_shown_that_its_own_pairs_do_not_show() -> None:
    """A shared error knows more than five pairs, unless it is wrong for this one."""
    values = table(9, 5, [1] * 8 + [2.5], seed=4)
    values[8] += 2.4 - (values[8] - values[0]).mean()
    own = scipy.stats.ttest_rel(values[8], values[0])
    for one in contrasts(values.tolist()):
        seen = of_contrast(one, _spending(1), is_last=False)
        assert seen.p_adjusted is not None
        assert seen.interval is not None
        alone = 2 * scipy.stats.t.sf(abs(one.mean) / one.own_standard_error, 4)
        assert seen.p_adjusted >= alone
        assert seen.interval.excludes_zero == (seen.p_adjusted < 0.05)
    assert own.pvalue > 0.05


def test_the_own_variances_of_variants_that_vary_alike_are_right_on_average() -> None:
    rng = np.random.default_rng(3)
    found = np.mean([_own_variances(rng.normal(scale=2, size=(4, 5))) for _ in range(4000)], axis=0)
    assert found == pytest.approx([4] * 4, rel=0.05)


def test_of_three_variants_that_vary_unlike_all_are_judged_by_their_own_pairs() -> None:
    values = table(3, 8, [1, 1, 9])
    found = contrasts(values.tolist())
    assert {(one.method, one.degrees) for one in found} == {("paired", 7)}
    own = [(row - values[0]).var(ddof=1) for row in values[1:]]
    assert [one.variance for one in found] == pytest.approx(own)


@pytest.mark.parametrize("seed", range(5))
def test_whether_variants_vary_alike_is_bartlett_s_test(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = table(5, 6, [1, 1, 2, 1, 1], seed=seed)
    beside = [row - np.delete(values, i, axis=0).mean(axis=0) for i, row in enumerate(values)]
    p = float(scipy.stats.bartlett(*beside).pvalue)
    for level, unlike in ((p * 1.001, True), (p * 0.999, False)):
        monkeypatch.setattr(blocks, "ALIKE_LEVEL", level)
        assert _vary_unlike(values) is unlike


@pytest.mark.parametrize("k", [2, 3, 4, 10])
def test_values_that_do_not_vary_have_no_error(k: int) -> None:
    values = [[0.1 * i + 0.7 * j for j in range(5)] for i in range(k)]
    assert [(one.variance, one.own_variance) for one in contrasts(values)] == [(0, 0)] * (k - 1)


def test_a_constant_difference_is_judged_by_what_the_others_vary() -> None:
    values = table(5, 5, [1] * 5)
    values[1] = values[0] + 2
    constant = contrasts(values.tolist())[0]
    assert constant.own_variance == pytest.approx(0)
    assert constant.variance > 0.5


def test_the_tests_before_the_test_have_their_level() -> None:
    """In 1,000 tables of equal variances the baseline's test has its level, the others' at most the sum."""
    rng = np.random.default_rng(7)
    baseline = variant = 0
    for _ in range(1000):
        methods = [one.method for one in contrasts(rng.normal(size=(5, 4)).tolist())]
        baseline += "baseline_apart" in methods
        variant += "each_apart" in methods
    error = 4 * math.sqrt(0.15 * 0.85 / 1000)
    assert 0.1 - error < variant / 1000 < 0.15 + error
    assert baseline / (1000 - variant) == pytest.approx(0.15, abs=error)


def test_satterthwaite_s_degrees_lie_between_those_of_the_parts() -> None:
    found = contrasts(table(6, 5, [3, 1, 1, 1, 1, 1]).tolist())[0]
    assert 4 <= found.degrees <= 20
    assert scipy.stats.t.ppf(0.975, found.degrees) < scipy.stats.t.ppf(0.975, 4)


@pytest.mark.parametrize(
    ("planned", "fixed", "reached"),
    [
        (5, False, {4: None, 5: 5, 9: 5, 10: 10, 39: 20, 40: 40}),
        (2, False, {2: None, 4: None, 5: 5, 10: 10}),
        (3, False, {2: None, 3: 3, 5: 3, 6: 6}),
        (7, True, {6: None, 7: 7, 100: 7}),
    ],
)
def test_looks_are_the_planned_number_and_its_doublings(
    planned: int, fixed: bool, reached: dict[int, int | None]
) -> None:
    looks = Looks(planned, fixed)
    assert {seeds: looks.reached(seeds) for seeds in reached} == reached


@pytest.mark.parametrize("planned", [1, 2, 3, 5, 64])
def test_shares_of_all_looks_add_up_to_no_more_than_one(planned: int) -> None:
    looks = Looks(planned)
    shares = [looks.share(look) for look in looks.later(0)]
    assert shares[:3] == pytest.approx([0.9, 0.05, 0.025])
    assert sum(shares) <= 1
    assert Looks(planned, fixed=True).share(planned) == 1


def one_after_another(table: NDArray[np.float64], level: float) -> tuple[int, ...]:
    """The variants of a table that are set aside, by the definition: each test of a table of its own."""
    left, wild = list(range(len(table))), 0
    out: list[int] = []
    while len(left) > 2 and len(out) < len(table) // 2:
        rows, seeds = table[left], table.shape[1]
        residual = rows - rows.mean(axis=0) - rows.mean(axis=1, keepdims=True) + rows.mean()
        others = (rows.sum(axis=0) - rows) / (len(rows) - 1)
        own = (rows - others).var(axis=1, ddof=1) * (len(rows) - 1) / len(rows)
        most = int(own.argmax())
        rest = (residual**2).sum() - own[most] * (seeds - 1)
        ratio = own[most] * (len(rows) - 2) * (seeds - 1) / rest
        p = scipy.stats.f.sf(ratio, seeds - 1, (len(rows) - 2) * (seeds - 1))
        wild = len(out) + 1 if p < level / len(rows) else wild
        out.append(left.pop(most))
    return tuple(sorted(out[:wild]))


def test_what_is_set_aside_is_left_out_one_after_another() -> None:
    rng, met = np.random.default_rng(3), set[int]()
    for rows in (3, 4, 7, 12, 25):
        for wild in range(4):
            table = 100 * rng.normal(size=(1, 6)) + rng.normal(size=(rows + 1, 6))
            table[1 : 1 + wild] *= rng.choice([4.0, 1e3])
            found = contrasts(table.tolist())[0].set_aside
            assert found == one_after_another(table[1:], SET_ASIDE_LEVEL)
            met.add(len(found))
    assert {0, 1, 2, 3} <= met


@pytest.mark.parametrize(("rows", "seeds", "beyond"), [(3, 5, 1), (4, 5, 1), (30, 6, 1e9), (40, 4, 1)])
def test_outliers_of_each_baseline_are_the_same_all_at_once(rows: int, seeds: int, beyond: float) -> None:
    rng = np.random.default_rng(rows)
    spreads = np.exp(rng.normal(size=(rows, 1)))
    table = rng.normal(size=(rows, seeds)) * spreads + rng.normal(size=(rows, 1)) + rng.normal(size=seeds)
    table[-1] *= beyond
    one_by_one = [blocks._Layout(table[[i, *range(i), *range(i + 1, rows)]]) for i in range(rows)]
    aside, wild = (
        [get(one) for one in one_by_one]
        for get in (blocks._set_aside, lambda one: blocks._wild(one, blocks.VARIANTS_LEVEL))
    )
    assert blocks.outliers_of_each(table) == list(map(blocks.Outliers, aside, wild))
    assert (any(aside), any(wild)) == (rows in (4, 30), rows > 3)
