"""Detectable effects match SciPy's noncentral t, G*Power, and simulated matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import scipy

from kharness.report.collection import CellResult, Variant
from kharness.report.judging.blocks import Contrast, among_all_pairs, contrasts
from kharness.report.judging.images import Images, least_shown, widened
from kharness.report.judging.judgment import Comparison, Verdict, judge
from kharness.report.judging.power import Chances, Rule, half_width, smallest
from kharness.report.metrics import metric_named
from kharness.report.runs import RunData
from kharness.report.settings import ReportSettings

ALPHA = 0.045
OWN = 0.05
"""Level of the test on a comparison's own pairs, as the report has it."""
PAIRS = math.sqrt(2)
"""The deviation of a pair's difference, of runs whose deviation is 1."""


def of_table(comparisons: int, seeds: int, alpha: float = ALPHA) -> Chances:
    """Chances as the dry run computes them: with a known deviation."""
    rule = Rule(comparisons, 1.0, 0.5, comparisons * (seeds - 1), seeds, pooled=True, own_level=OWN)
    return Chances(rule, seeds, alpha, PAIRS, None, 0.0)


@pytest.mark.parametrize(("effect", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_what_pairs_can_detect_is_g_power_s(effect: float, pairs: int) -> None:
    """G*Power 3.1, difference between two dependent means, two-sided 5 %, power 80 %: the fewest pairs."""
    for n, enough in ((pairs, True), (pairs - 1, False)):
        assert (smallest(of_table(1, n, 0.05)) / PAIRS <= effect) is enough


def test_a_deviation_that_was_estimated_counts_as_such() -> None:
    """Over what it may be: SciPy's noncentral t, averaged over chi square of four degrees."""
    found = smallest(Chances(Rule(1, 1.0, 0.0, 4, 5, pooled=False, own_level=OWN), 5, ALPHA, 1.0, 4, 0.0))
    t = scipy.stats.t.ppf(1 - ALPHA / 2, 4)
    power, _ = scipy.integrate.quad(
        lambda x: (
            scipy.stats.nct.sf(t, 4, found * math.sqrt(5) * math.sqrt(x / 4)) * scipy.stats.chi2.pdf(x, 4)
        ),
        0,
        60,
    )
    assert power == pytest.approx(0.8, abs=0.003)


def test_no_number_of_seeds_goes_below_what_the_images_allow() -> None:
    """d² = z² d(1-d)/N, so d = z²/(N+z²): of 1,000 images and 4.5 % four in a thousand."""
    weight = Images(1000).weight(ALPHA)
    z2 = scipy.stats.norm.ppf(1 - ALPHA / 2) ** 2
    assert least_shown(weight) == pytest.approx(z2 / (1000 + z2))
    rule = Rule(1, 1.0, 0.0, 10**6 - 1, 10**6, pooled=False, own_level=OWN)
    assert smallest(Chances(rule, 10**6, ALPHA, 0.001, None, weight)) == pytest.approx(
        least_shown(weight), rel=1e-2
    )


@lru_cache
def judged(comparisons: int, seeds: int, count: int = 300) -> Sequence[Sequence[Contrast]]:
    """Tables of runs with a deviation of 0.2 points, unlike those that the power is computed from."""
    rng = np.random.default_rng([20, comparisons, seeds])
    tables = 0.002 * rng.normal(size=(count, comparisons + 1, seeds))
    return [contrasts(table.tolist()) for table in tables]


def shown(contrast: Contrast, size: float, alpha: float, weight: float) -> bool:
    """Whether a variant that is better by so much would have been found so; the rest does not change."""
    return contrast.mean + size > widened(half_width(contrast, alpha, OWN), contrast.mean + size, weight)


@pytest.mark.parametrize(("comparisons", "seeds"), [(1, 3), (1, 5), (2, 5), (5, 3), (5, 5), (13, 5)])
def test_what_is_told_before_the_runs_is_found_in_eighty_percent(comparisons: int, seeds: int) -> None:
    """62 to 72 % of them before, by a t test that no test beforehand decides about."""
    size = 0.002 * smallest(of_table(comparisons, seeds))
    found = [shown(one, size, ALPHA, 0.0) for table in judged(comparisons, seeds) for one in table]
    assert 0.75 <= np.mean(found) <= 0.85


@pytest.mark.parametrize("images", [None, 1000])
@pytest.mark.parametrize(("comparisons", "seeds"), [(1, 3), (1, 5), (5, 3), (5, 5)])
def test_what_a_report_tells_is_found_by_other_seeds(
    comparisons: int, seeds: int, images: int | None
) -> None:
    """The effect that one matrix declares detectable is found in another matrix at the promised rate."""
    weight, found = Images(images).weight(ALPHA / comparisons), []
    tables = judged(comparisons, seeds)[: 300 if comparisons == 1 else 100]
    for table, other in zip(tables, [*tables[1:], tables[0]], strict=True):
        for one, unseen in zip(table, other, strict=True):
            deviation = math.sqrt(one.variance)
            told = smallest(Chances(Rule.of(one, OWN), seeds, ALPHA, deviation, one.degrees, weight))
            found.append(shown(unseen, told, ALPHA, weight))
    assert 0.75 <= np.mean(found) <= 0.86  # and a point of Monte Carlo error


def accuracies(rows: Sequence[Sequence[float]], first: int) -> Sequence[Comparison]:
    """Comparisons of accuracies on 1,000 images, in a matrix first planned with `first` seeds."""
    start, names = {"dataset": {"test": 1000}}, [*map(str, range(len(rows[0])))]
    variants = [
        Variant(
            {},
            str(i),
            [
                CellResult("", {"SEED": seed}, run_data(start, value))
                for seed, value in zip(names, row, strict=True)
            ],
        )
        for i, row in enumerate(rows)
    ]
    metric, settings = metric_named("test_accuracy"), ReportSettings(first_seeds=tuple(names[:first]))
    return judge([(one, variants[0]) for one in variants[1:]], [metric] * (len(rows) - 1), settings)


def run_data(start: Mapping[str, object], value: float) -> RunData:
    return RunData(
        Path("nowhere"), "complete", "", 1, start, {"steps_done": 1, "test_accuracy": value}, {}, 0
    )


def test_what_is_told_of_a_pair_chosen_after_looking_is_found_in_eighty_percent() -> None:
    """All pairs of six variants with equal variances hold at once."""
    rule = Rule(15, 1.0, 0.5, 20, 5, pooled=True, own_level=OWN, variants=6)
    size = smallest(Chances(rule, 5, ALPHA, PAIRS, None, 0.0))
    rng, found = np.random.default_rng(1), 0
    for _ in range(200):
        table = rng.normal(size=(6, 5))
        table[3] += size
        contrast = among_all_pairs(contrasts(table.tolist())[2], 6)
        found += abs(contrast.mean) > half_width(contrast, ALPHA, OWN)
    assert 0.74 < found / 200 < 0.86


def test_more_seeds_are_not_told_where_the_images_allow_none() -> None:
    """A true 0.3 points on 1,000 images, as sure as seeds can be; before, ever more of them were told."""
    rng = np.random.default_rng(7)
    for seeds in (5, 10, 20):
        rows = 0.9 + 0.0002 * rng.normal(size=(2, seeds))
        rows[1] += 0.003
        (found,) = accuracies(rows.tolist(), 5)
        assert (found.verdict, found.more_seeds) == (Verdict.NOT_SHOWN, None)
        assert found.reason == "no number of seeds shows one of this size on 1,000 images"
        z2 = scipy.stats.norm.ppf(1 - ALPHA / 2) ** 2
        assert found.limit == pytest.approx(z2 / (1000 + z2))
        assert found.smallest is not None
        assert found.smallest > found.limit > found.difference  # type: ignore[operator]


def test_the_images_are_charged_once() -> None:
    """Their half width is the same at every look, so that added seeds do not widen an interval by it."""
    rows = [[0.9 + 0.001 * (i % 2) for i in range(10)], [0.91 + 0.001 * (i % 2) for i in range(10)]]
    (five,), (ten,) = accuracies([row[:5] for row in rows], 5), accuracies(rows, 5)
    assert (five.method, five.verdict, ten.verdict) == ("test_set", Verdict.BETTER, Verdict.BETTER)
    assert five.interval is not None
    assert ten.interval is not None
    assert ten.interval.low == pytest.approx(five.interval.low)
    assert ten.p_adjusted == pytest.approx(five.p_adjusted)


def test_an_interval_has_the_squares_of_both_errors() -> None:
    """Seeds: t of 4 degrees. Images: z √(d(1-d)/1000). A p is the alpha at which it reaches zero."""
    differences = [0.012, 0.008, 0.015, 0.005, 0.011]
    (found,) = accuracies([[0.9] * 5, [0.9 + d for d in differences]], 5)
    mean, error = np.mean(differences), np.std(differences, ddof=1) / math.sqrt(5)

    def half(alpha: float) -> float:
        of_images = scipy.stats.norm.ppf(1 - alpha / 2) ** 2 * mean * (1 - mean) / 1000
        return math.sqrt((scipy.stats.t.ppf(1 - alpha / 2, 4) * error) ** 2 + of_images)

    assert found.interval is not None
    assert found.interval.low == pytest.approx(mean - half(ALPHA))
    assert found.p is not None
    assert found.p_adjusted is not None
    assert half(found.p) == pytest.approx(mean)
    assert half(0.9 * found.p_adjusted) == pytest.approx(mean)


def test_a_difference_of_no_image_is_not_shown_at_any_level() -> None:
    """Where several comparisons share the error, the images alone reach further."""
    rng = np.random.default_rng(3)
    rows = 0.9 + 1e-6 * rng.normal(size=(6, 5))
    assert [found.p_adjusted for found in accuracies(rows.tolist(), 5)] == [1.0] * 5
