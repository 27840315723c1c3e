"""Verdicts about run directories as trainings leave them, checked by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from kharness.report.collection import CellResult, Variant
from kharness.report.judging.judgment import Comparison, Verdict, judge
from kharness.report.judging.sentences import comparison_lines, comparison_sentence
from kharness.report.judging.statistics import largest_t, largest_t_p
from kharness.report.metrics import metric_named
from kharness.report.overview.headline import headline
from kharness.report.report import report_lines
from kharness.report.runs import RunData
from kharness.report.settings import ReportSettings
from kharness.report.summary import Summary, collect
from kharness.report.writing.files import as_markdown

from ..conftest import Make, written_json
from .conftest import Matrix, MatrixOf, end, seeds


def test_a_clear_difference_in_pairs_is_better_and_its_mirror_worse(matrix_of: MatrixOf) -> None:
    """Differences of 2, 3 and 4 points: mean 3, deviation 1, t = 3·√3 of 2 degrees, p = 0.0351.

    Three seeds are the first look, which has 90 % of the error.
    """
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    (found,) = matrix.judged()
    assert (found.variant, found.baseline, found.verdict, found.reason) == ("adam", "sgd", Verdict.BETTER, "")
    assert (found.method, found.seeds, found.counts) == ("paired", ("1", "2", "3"), (3, 3))
    assert found.difference == pytest.approx(0.03)
    # of two degrees of freedom: P(|T| > t) = 1 - t/√(2 + t²)
    assert found.p == pytest.approx(1 - math.sqrt(27 / 29))
    assert found.p_holm == found.p
    assert found.p_adjusted == pytest.approx((1 - math.sqrt(27 / 29)) / 0.9)
    half = scipy.stats.t.ppf(1 - 0.9 * 0.05 / 2, 2) * 0.01 / math.sqrt(3)
    assert found.interval is not None
    interval = (found.interval.low, found.interval.high, found.interval.level)
    assert interval == pytest.approx((0.03 - half, 0.03 + half, 0.955))
    assert found.effect == pytest.approx(3 / math.sqrt(math.pi))
    (mirror,) = matrix.judged(BASELINE="adam")
    assert (mirror.variant, mirror.verdict) == ("sgd", Verdict.WORSE)
    assert mirror.difference == pytest.approx(-0.03)


def test_a_smaller_loss_is_better(matrix_of: MatrixOf) -> None:
    low = {seed: end(None, test_loss=loss) for seed, loss in zip("123", (0.10, 0.20, 0.30), strict=True)}
    high = {seed: end(None, test_loss=loss) for seed, loss in zip("123", (0.12, 0.23, 0.34), strict=True)}
    (found,) = matrix_of(sgd=high, adam=low).judged(CONFIG_REPORT_METRIC="test_loss")
    assert found.verdict is Verdict.BETTER
    assert found.difference == pytest.approx(-0.03)


def test_seeds_without_a_partner_are_named_and_left_out(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd={"1": 0.9, "2": 0.8, "3": 0.7, "4": 0.1}, adam={"1": 0.92, "2": 0.83, "3": 0.74})
    (found,) = matrix.judged()
    assert (found.seeds, found.left_out) == (("1", "2", "3"), ("optimizer-sgd_seed-4",))
    assert found.difference == pytest.approx(0.03)
    assert "Without a partner of the same seed, left out: optimizer-sgd_seed-4" in comparison_sentence(found)


def test_without_a_common_seed_the_groups_are_independent(matrix_of: MatrixOf) -> None:
    """Means 0.8 and 0.92, deviations 0.01 both, three each: t = 0.12/√(0.0002/3) of 4 degrees."""
    matrix = matrix_of(sgd={"1": 0.79, "2": 0.80, "3": 0.81}, adam={"4": 0.91, "5": 0.92, "6": 0.93})
    (found,) = matrix.judged()
    assert (found.method, found.seeds, found.verdict) == ("welch", (), Verdict.BETTER)
    half = scipy.stats.t.ppf(1 - 0.9 * 0.05 / 2, 4) * math.sqrt(0.0002 / 3)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.12 - half)
    assert "no seed is common to both: Welch's t test of 3 against 3 runs" in comparison_sentence(found)


ALONE = "chance cannot be separated from a difference"


@pytest.mark.parametrize(
    ("sgd", "adam", "verdict", "reason"),
    [
        ({"1": 0.9}, {"1": 0.5}, "undecided", f"one common seed: {ALONE}"),
        ({"1": 0.9}, {"2": 0.5, "3": 0.6}, "undecided", f"a single run on one side: {ALONE}"),
        (
            seeds(0.5, 0.75, 0.6),
            seeds(0.5, 0.75, 0.6),
            "no difference shown",
            "all 3 pairs are exactly equal",
        ),
        (
            seeds(0.5, 0.75, 0.625),
            seeds(0.25, 0.5, 0.375),
            "undecided",
            "every pair differs by the same amount, so the spread of chance is unknown",
        ),
        (
            {"1": 0.5, "2": 0.5, "3": 0.5},
            {"4": 0.25, "5": 0.25, "6": 0.25},
            "undecided",
            "no side varies between its runs, so the spread of chance is unknown",
        ),
        ({"1": 0.5, "2": 0.5}, {"1": None}, "undecided", "no complete run of adam has test accuracy"),
        ({"1": 0.5, "2": 0.5}, {}, "undecided", "no complete run of adam has test accuracy"),
    ],
)
def test_where_there_are_no_statistics_it_is_said_in_words(
    matrix_of: MatrixOf, sgd: Any, adam: Any, verdict: str, reason: str
) -> None:
    matrix = matrix_of(sgd=sgd, adam=adam)
    if not adam:
        matrix.made.plan({"OPTIMIZER": "adam", "SEED": "1"})
    (found,) = matrix.judged()
    assert (str(found.verdict), found.reason) == (verdict, reason)
    assert (found.p, found.p_adjusted, found.interval, found.effect, found.more_seeds) == (None,) * 5


def test_two_seeds_show_their_interval_and_give_no_verdict(matrix_of: MatrixOf) -> None:
    """However clear: the spread of two is known too badly. Differences of 30 and 31 points."""
    (found,) = matrix_of(sgd=seeds(0.5, 0.5), adam=seeds(0.80, 0.81)).judged()
    assert (found.verdict, found.reason) == (Verdict.TOO_FEW, "2, verdicts begin at 5")
    half = scipy.stats.t.ppf(0.975, 1) * 0.005
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((0.305 - half, 0.305 + half))
    assert found.p == pytest.approx(scipy.stats.ttest_1samp([0.30, 0.31], 0).pvalue)
    assert found.p_adjusted is None


def diverged() -> list[dict[str, Any]]:
    return [
        end(None)[0],
        {"event": "step", "global_step": 1, "train_loss": None, "nonfinite": ["train_loss"]},
    ]


def test_a_seed_that_diverged_is_no_seed_to_leave_out(matrix_of: MatrixOf) -> None:
    """The other four alone would be better with p < 0.001."""
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70, 0.60, 0.50), adam=seeds(0.93, 0.831, 0.729, 0.63))
    run = matrix.made.add(
        {"OPTIMIZER": "adam", "SEED": "5"}, diverged(), status="failed", reason="loss is nan"
    )
    (found,) = matrix.judged()
    assert (found.verdict, found.reason) == (Verdict.NOT_COMPARABLE, "diverged in 1 of 5 seeds")
    assert (found.interval, found.p, found.p_adjusted) == (None, None, None)
    assert found.failures == (f"{run.name}: failed (loss is nan)",)
    (mirror,) = matrix.judged(BASELINE="adam")
    assert (mirror.verdict, mirror.reason) == (Verdict.NOT_COMPARABLE, "adam diverged in 1 of 5 seeds")


@pytest.mark.parametrize(
    ("status", "cause", "words"),
    [
        ("failed", "non_finite", "diverged"),
        ("failed", "out_of_memory", "ran out of memory"),
        ("timeout", "timeout", "timed out"),
        ("failed", "exit_code", "failed"),
        ("interrupted", "stopped_early", "was stopped early"),
    ],
)
def test_runs_that_end_by_themselves_count(matrix_of: MatrixOf, status: str, cause: str, words: str) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70, 0.6), adam=seeds(0.92, 0.83, 0.74))
    run = matrix.made.add({"OPTIMIZER": "adam", "SEED": "4"}, end(None)[:1], status=status)
    attempt = {"started": 1.0, "ended": 2.0, "pid": 7, "exit_code": 1, "signal": None, "reason": "x"}
    (run / "status.json").write_text(
        json.dumps({"status": status, "attempts": [{**attempt, "cause": cause}]})
    )
    (found,) = matrix.judged()
    assert (found.verdict, found.reason) == (Verdict.NOT_COMPARABLE, f"{words} in 1 of 4 seeds")


@pytest.mark.parametrize("status", ["killed", "interrupted", "running", "pending"])
def test_runs_that_may_still_end_well_are_waited_for(matrix_of: MatrixOf, status: str) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70, 0.6), adam=seeds(0.92, 0.83, 0.74))
    matrix.made.add({"OPTIMIZER": "adam", "SEED": "4"}, end(None)[:1], status=status)
    (found,) = matrix.judged()
    assert (found.verdict, found.reason) == (Verdict.NOT_YET, "3 of 4 planned seeds")
    half = scipy.stats.t.ppf(0.975, 2) * 0.01 / math.sqrt(3)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.03 - half)


def test_runs_that_are_not_counted_stand_beside_the_verdict(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    matrix.made.add({"OPTIMIZER": "adam", "SEED": "4"}, end(None)[:1], status="failed", reason="exit code 1")
    matrix.made.add({"OPTIMIZER": "adam", "SEED": "5"}, end(None))
    (found,) = matrix.judged()
    assert (found.verdict, found.failed) == (Verdict.BETTER, (1, 0))
    assert found.failures == (
        "optimizer-adam_seed-4: failed (exit code 1)",
        "optimizer-adam_seed-5: complete without test accuracy",
    )
    lines = report_lines(collect(matrix.made.directory))
    assert lines[-1].startswith(
        "  adam  +3.00 (+0.37 to +5.63) points  better, p 0.039  [2 runs not counted]"
    )


def test_several_comparisons_hold_at_once_with_the_error_of_all(matrix_of: MatrixOf) -> None:
    """The residual mean square of variant + seed, of 4 degrees, and Dunnett's t of two comparisons."""
    values = {"sgd": (90, 80, 70), "adam": (92, 83, 71), "adamw": (93, 81, 72)}
    matrix = matrix_of(**{name: seeds(*(v / 100 for v in row)) for name, row in values.items()})
    adam, adamw = matrix.judged()
    table = np.array([*values.values()])
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    error = math.sqrt(2 * (rest**2).sum() / 4 / 3) / 100
    assert (adam.method, adamw.method) == ("blocked", "blocked")
    assert adam.degrees == 4
    assert adam.p == pytest.approx(2 * scipy.stats.t.sf(0.02 / error, 4))
    t = largest_t(2, 4, 0.045)
    assert adam.interval is not None
    assert adam.interval.high - adam.interval.low == pytest.approx(2 * t * error)
    assert adam.p_adjusted == pytest.approx(largest_t_p(0.02 / error, 2, 4) / 0.9)
    assert adam.p is not None
    assert adam.p_holm == pytest.approx(2 * adam.p)


def test_comparisons_that_cannot_be_made_cost_the_others_nothing(matrix_of: MatrixOf) -> None:
    single = {"1": 0.99}
    adam, adamw = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74), adamw=single).judged()
    assert (adam.verdict, adamw.verdict) == (Verdict.BETTER, Verdict.UNDECIDED)
    assert adam.p_adjusted == pytest.approx((1 - math.sqrt(27 / 29)) / 0.9)


def test_a_comparison_that_waits_counts_as_one(matrix_of: MatrixOf) -> None:
    """A verdict shown before all variants have run must still hold together with theirs."""
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74), adamw=seeds(0.9, 0.8))
    matrix.made.plan({"OPTIMIZER": "adamw", "SEED": "3"})
    adam, adamw = matrix.judged()
    assert (adam.verdict, adamw.verdict) == (Verdict.NOT_SHOWN, Verdict.NOT_YET)
    assert adam.p_adjusted == pytest.approx(2 * (1 - math.sqrt(27 / 29)) / 0.9)


def measured(accuracies: Sequence[float], images: int) -> dict[str, Any]:
    """The same with the size of the test set that they were measured on."""
    found = {str(seed): end(accuracy) for seed, accuracy in enumerate(accuracies, 1)}
    for records in found.values():
        records[0]["dataset"] = {"name": "digits", "train": 64, "test": images}
    return found


@pytest.mark.parametrize(
    ("points", "number", "verdict"),
    [
        pytest.param(20.0, 5, "better", id="20 points in each of five seeds"),
        pytest.param(0.2, 5, "no difference shown", id="two images in each of five seeds"),
        pytest.param(0.2, 2, "too few seeds", id="two images twice"),
        pytest.param(20.0, 2, "too few seeds", id="20 points twice"),
    ],
)
def test_a_constant_difference_is_judged_by_the_test_set(
    matrix_of: MatrixOf, points: float, number: int, verdict: str
) -> None:
    """The test set has 1,000 images: d has the standard error √(d(1-d)/1000) if disagreement is chance."""
    base = [0.7, 0.71, 0.69, 0.705, 0.695][:number]
    matrix = matrix_of(sgd=measured(base, 1000), adam=measured([a + points / 100 for a in base], 1000))
    (found,) = matrix.judged()
    assert str(found.verdict) == verdict
    if number == 2:
        return
    d = points / 100
    error = math.sqrt(d * (1 - d) / 1000)
    assert found.method == "test_set"
    assert found.p == pytest.approx(2 * scipy.stats.norm.sf(d / error), rel=1e-6)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(d - scipy.stats.norm.ppf(1 - 0.045 / 2) * error)


def test_fewer_images_than_a_difference_needs_widen_its_interval(matrix_of: MatrixOf) -> None:
    """Ten seeds are sure of 0.3 points, which are three images of 1,000 and may be chance."""
    base = [0.7 + 0.01 * seed for seed in range(10)]
    better = [a + 0.003 + 0.0001 * (-1) ** seed for seed, a in enumerate(base)]
    few = matrix_of(sgd=measured(base, 1000), adam=measured(better, 1000)).judged()
    assert few[0].verdict is Verdict.NOT_SHOWN


def test_what_no_number_of_seeds_shows_is_said(matrix_of: MatrixOf) -> None:
    """z²/(1000 + z²) with z of 1 - 0.045/2 is 0.40 points; differences of 0.2 and 0.3 points are below it."""
    base = [0.7 + 0.01 * seed for seed in range(5)]
    better = [a + 0.0025 + 0.0005 * (-1) ** seed for seed, a in enumerate(base)]
    matrix = matrix_of(sgd=measured(base, 1000), adam=measured(better, 1000))
    summary = collect(matrix.made.directory)
    terminal, page = "\n".join(report_lines(summary)), as_markdown(summary)
    assert "no difference shown: no number of seeds shows one of this size on 1,000 images" in terminal
    assert "\n  on 1,000 test images no number of seeds shows less than 0.40 points" in terminal
    assert "points or more. On 1,000 test images no number of seeds shows less than 0.40 points." in page
    content: Any = written_json(summary)["comparisons"]
    assert (content[0]["num_images"], content[0]["more_seeds"]) == (1000, None)
    assert content[0]["test_set_limit"] == pytest.approx(0.0040, abs=5e-5)


def test_more_seeds_than_anyone_trains_are_no_number(matrix_of: MatrixOf) -> None:
    """0.42 points, just above what 1,000 images can show, take thousands of seeds that vary by a point."""
    base = [0.7 + 0.01 * seed for seed in range(5)]
    better = [a + 0.0042 + 0.008 * part for a, part in zip(base, (-1, 0.4, -0.4, 1, 0), strict=True)]
    matrix = matrix_of(sgd=measured(base, 1000), adam=measured(better, 1000))
    (found,) = matrix.judged()
    assert (found.more_seeds, found.more_seeds_range) == (None, None)
    assert found.reason == "not even 1,000 seeds would show one of this size"
    shown = headline(collect(matrix.made.directory)).shown
    assert "adam: not even 1,000 seeds would show a difference of 0.42 points." in shown


def test_within_the_margin_two_variants_are_the_same(matrix_of: MatrixOf) -> None:
    """Differences of -0.1, 0 and 0.1 points: the interval reaches to 0.26."""
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.899, 0.80, 0.701))
    half = scipy.stats.t.ppf(1 - 0.045 / 2, 2) * 0.001 / math.sqrt(3)
    (found,) = matrix.judged(CONFIG_REPORT_EQUIVALENCE_MARGIN="0.003")
    assert (found.verdict, found.reason) == (Verdict.SAME, "")
    assert found.interval is not None
    assert (found.interval.high, found.interval.level) == pytest.approx((half, 0.955))
    (narrow,) = matrix.judged(CONFIG_REPORT_EQUIVALENCE_MARGIN="0.002")
    assert narrow.verdict is Verdict.NOT_SHOWN
    assert "adam  0.00 (-0.26 to +0.26) points  the same, 95.5 %" in "\n".join(
        report_lines(collect(matrix.made.directory, {"CONFIG_REPORT_EQUIVALENCE_MARGIN": "0.003"}))
    )


def noisy(start: float, differences: Sequence[float]) -> dict[str, float]:
    return seeds(*(start + 0.1 * i + d / 100 for i, d in enumerate(differences)))


def test_more_seeds_reach_a_look_and_have_a_range(matrix_of: MatrixOf) -> None:
    """Differences of -1, 1, 3, 0 and 4 points: 0.7 deviations. Other seeds find that at one of the looks to
    come, by paired t tests of 40,000 simulated series.

    At the ends of the deviation's interval it is taken as known, in between averaged over what it may be.
    """
    sgd, adam = noisy(0.2, [0] * 5), noisy(0.2, [-1, 1, 3, 0, 4])
    (found,) = matrix_of(sgd=sgd, adam=adam).judged()
    effect = 1.4 / np.std([-1, 1, 3, 0, 4], ddof=1)
    shares = {10: 0.05, 20: 0.025, 40: 0.0125, 80: 0.00625, 160: 0.003125, 320: 0.0015625}
    rng = np.random.default_rng(0)

    def first(spreads: Any) -> int:
        is_shown = np.zeros(40_000, dtype=bool)
        totals, squares, before = np.zeros(40_000), np.zeros(40_000), 0
        for n, share in shares.items():
            # sums of normal numbers, and of their squares: no need of each number
            added = n - before
            mean = effect / spreads + rng.normal(size=40_000) / math.sqrt(added)
            squares += added * mean**2 + rng.chisquare(added - 1, 40_000)
            totals, before = totals + added * mean, n
            deviation = np.sqrt((squares - totals**2 / n) / (n - 1))
            t = scipy.stats.t.ppf(1 - share * 0.05 / 2, n - 1)
            is_shown |= totals / n > t * deviation / math.sqrt(n)
            if is_shown.mean() >= 0.8:
                return n
        raise AssertionError("never")

    unknown = np.sqrt(4 / rng.chisquare(4, 40_000))
    spreads = [unknown, *(math.sqrt(4 / scipy.stats.chi2.ppf(q, 4)) for q in (0.9, 0.1))]
    expected = [first(one) - 5 for one in spreads]
    assert (found.more_seeds, found.more_seeds_range) == (expected[0], (expected[1], expected[2]))
    assert found.reason == f"{expected[0]} ({expected[1]} to {expected[2]}) more seeds for one of this size"


def test_of_a_difference_within_chance_no_number_of_seeds_is_told(matrix_of: MatrixOf) -> None:
    (found,) = matrix_of(sgd=noisy(0.2, [0] * 3), adam=noisy(0.2, [-1, 1, 0.01])).judged()
    assert (found.verdict, found.reason) == (Verdict.NOT_SHOWN, "it is within chance")
    assert (found.more_seeds, found.more_seeds_range) == (None, None)


def with_plan(matrix: Matrix, **seeds_planned: Any) -> Comparison:
    path = matrix.made.directory / "matrix.json"
    plan = {**json.loads(path.read_text()), "seeds": seeds_planned}
    path.write_text(json.dumps(plan))
    (found,) = matrix.judged()
    return found


CLEAR = [2, 3, 4, 3, 2, 4, 3]


def test_seeds_beyond_a_look_wait_for_the_next(matrix_of: MatrixOf) -> None:
    """Three were planned first: six are the second look, and the seventh waits for the twelfth."""
    matrix = matrix_of(sgd=noisy(0.1, [0] * 7), adam=noisy(0.1, CLEAR))
    found = with_plan(matrix, first=["1", "2", "3"], planned=0)
    assert (found.verdict, found.counts, found.next_look) == (Verdict.BETTER, (6, 6), 12)
    lines = comparison_lines(collect(matrix.made.directory, {}).conclusions)
    assert "  verdicts are of 6 seeds, not of 7: the next look is at 12" in lines
    assert found.interval is not None
    assert found.interval.level == pytest.approx(1 - 0.05 * 0.95)
    first, p = (scipy.stats.ttest_1samp(CLEAR[:n], 0).pvalue for n in (3, 6))
    assert (found.p, found.p_adjusted) == pytest.approx((p, min(first / 0.9, p / 0.05)))


def test_seeds_planned_once_and_for_all_are_judged_at_that_number(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd=noisy(0.1, [0] * 7), adam=noisy(0.1, CLEAR))
    found = with_plan(matrix, first=["1"], planned=5)
    assert (found.verdict, found.counts, found.next_look) == (Verdict.BETTER, (5, 5), None)
    lines = comparison_lines(collect(matrix.made.directory, {}).conclusions)
    assert "  verdicts are of 5 seeds, not of 7: MATRIX_SEEDS_PLANNED has one look" in lines
    assert found.p_adjusted == found.p == pytest.approx(scipy.stats.ttest_1samp(CLEAR[:5], 0).pvalue)
    late = with_plan(matrix, first=["1"], planned=9)
    assert (late.verdict, late.reason) == (Verdict.NOT_YET, "7 of 9 planned seeds")
    assert late.interval is not None


def test_one_far_better_variant_of_a_hundred_is_found() -> None:
    """One variant of 101 is better by seven deviations, with five seeds."""
    rng = np.random.default_rng(1)
    table = 0.5 + 0.01 * rng.normal(size=(101, 5))
    table[60] += 0.07
    rows = [variant(f"v{i}", seeds(*row)) for i, row in enumerate(table.tolist())]
    metrics = [metric_named("test_accuracy")] * (len(rows) - 1)
    found = judge([(one, rows[0]) for one in rows[1:]], metrics, ReportSettings())
    assert [c.variant for c in found if c.verdict is Verdict.BETTER] == ["v60"]


def test_what_is_concluded_of_a_variant_does_not_depend_on_a_wild_one_beside_it() -> None:
    """Beside it there is one comparison more, and a quarter of the error is kept back."""
    rng = np.random.default_rng(5)
    rows = [variant(f"v{i}", seeds(*(0.9 + 0.001 * rng.normal(size=5)))) for i in range(13)]
    sgd = variant("sgd", seeds(*(0.9 + 0.02 * rng.normal(size=5))))

    def judged(variants: Sequence[Variant]) -> Sequence[Comparison]:
        metrics = [metric_named("test_accuracy")] * len(variants)
        return judge([(one, rows[0]) for one in variants], metrics, ReportSettings(seeds_planned=5))

    alone, (*beside, wild) = judged(rows[1:]), judged([*rows[1:], sgd])
    narrow, wide = largest_t(12, 48, 0.05), largest_t(12, 48, 0.05 * 0.75 * 12 / 13)
    assert {one.method for one in [*alone, *beside]} == {"blocked"}
    ratios = []
    for one, other in zip(alone, beside, strict=True):
        assert (one.p, one.effect, one.degrees) == (other.p, other.effect, 48)
        assert one.interval is not None
        assert other.interval is not None
        widths = [of.high - of.low for of in (one.interval, other.interval)]
        ratios.append(widths[1] / widths[0])
    # no more where a comparison's own pairs are what makes its interval wide
    assert max(ratios) == pytest.approx(wide / narrow)
    assert min(ratios) >= 1
    assert wide / narrow < 1.06
    assert (wild.method, beside[0].set_aside, alone[0].set_aside) == ("variant_apart", ("sgd",), ())
    assert "sgd varies more than the others, so that it is judged by its own pairs" in comparison_sentence(
        wild
    )
    assert "pooled over all variants but sgd, which vary alike" in comparison_sentence(beside[0])


def test_json_has_every_number_of_a_verdict(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    content: Any = written_json(collect(matrix.made.directory))
    comparison = content["comparisons"][0]
    budget = {"steps": [100], "samples": [916], "tokens": [], "training_seconds": None}
    half = scipy.stats.t.ppf(1 - 0.9 * 0.05 / 2, 2) * 0.01 / math.sqrt(3)
    assert (comparison.pop("low"), comparison.pop("high")) == (
        pytest.approx(0.03 - half),
        pytest.approx(0.03 + half),
    )
    assert comparison.pop("sentence").startswith(
        "**adam** is better than sgd in test accuracy. Difference +3.00"
    )
    assert (comparison.pop("words"), comparison.pop("p_words")) == ("+3.00 (+0.37 to +5.63) points", "0.039")
    smallest = comparison.pop("smallest_difference") / (0.01 / math.sqrt(3))
    # over what the deviation may be: chi square of two degrees, in equal parts
    parts = np.sqrt(scipy.stats.chi2.ppf(np.linspace(0.0005, 0.9995, 1000), 2) / 2)
    power = scipy.stats.nct.sf(scipy.stats.t.ppf(1 - 0.9 * 0.05 / 2, 2), 2, smallest * parts).mean()
    assert power == pytest.approx(0.8, abs=5e-3)
    assert comparison == {
        "variant": "adam",
        "baseline": "sgd",
        "metric": "test_accuracy",
        "verdict": "better",
        "reason": None,
        "method": "paired",
        "seeds": ["1", "2", "3"],
        "left_out": [],
        "set_aside": [],
        "tied_seeds": [],
        "chosen_of_pairs": None,
        "num_values": [3, 3],
        "difference": pytest.approx(0.03),
        "level": pytest.approx(0.955),
        "effect_size": pytest.approx(3 / math.sqrt(math.pi)),
        "p": pytest.approx(1 - math.sqrt(27 / 29)),
        "p_holm": pytest.approx(1 - math.sqrt(27 / 29)),
        "p_adjusted": pytest.approx((1 - math.sqrt(27 / 29)) / 0.9),
        "degrees_of_freedom": 2,
        "num_images": None,
        "test_set_limit": None,
        "more_seeds": None,
        "more_seeds_range": None,
        "planned_seeds": 3,
        "next_look": 6,
        "shown_at": 3,
        "looks": [
            {
                "seeds": 3,
                "low": pytest.approx(0.03 - half),
                "high": pytest.approx(0.03 + half),
                "level": pytest.approx(0.955),
            }
        ],
        "budget_unit": "samples",
        "budgets": [budget, budget],
        "failures": [],
    }
    assert (content["confidence"], content["decisive_metric"], content["baseline"]) == (
        0.95,
        "test_accuracy",
        "sgd",
    )


def test_energy_and_cost_are_read_where_they_were_measured(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["end", "samples", "none"]})
    made.add({"OPTIMIZER": "end"}, end(0.9, energy_joules=500.0, cost=0.25))
    sampled = made.add({"OPTIMIZER": "samples"}, end(0.8))
    totals = {"aggregate_stats": {"energy_joules": 250.0, "cost": None}}
    (sampled / "gpu_stats.jsonl").write_text(json.dumps({"event": "gpu", **totals}) + "\n")
    made.add({"OPTIMIZER": "none"}, end(0.7))
    fronts = {front.cost: front for front in collect(made.directory).conclusions.fronts}
    assert fronts["energy_joules"].points == {"end": (0.9, 500.0), "samples": (0.8, 250.0)}
    assert (fronts["energy_joules"].members, fronts["energy_joules"].unmeasured) == (
        ["end", "samples"],
        ["none"],
    )
    assert (fronts["cost"].members, fronts["cost"].unmeasured) == (["end"], ["samples", "none"])
    page = as_markdown(collect(made.directory))
    assert "| samples | 80.00 | 250 | - | energy |" in page
    assert "Not known: time, CPU memory." in page


def variant(label: str, accuracies: Mapping[str, float], images: int | None = None) -> Variant:
    start = {"dataset": {"test": images}}
    cells = [
        CellResult(
            f"{label}-{seed}",
            {"SEED": seed},
            RunData(Path(label), "complete", "", 1, start, {"steps_done": 9, "test_accuracy": value}, {}, 0),
        )
        for seed, value in accuracies.items()
    ]
    return Variant({}, label, cells)


accuracies_by_seed = st.dictionaries(
    st.sampled_from("123456"), st.integers(0, 100).map(lambda percent: percent / 100)
)


@settings(deadline=None)
@given(
    accuracies_by_seed,
    st.lists(accuracies_by_seed, max_size=4),
    st.sampled_from([0.8, 0.95, 0.99]),
    st.sampled_from([0.0, 0.05]),
    st.sampled_from([None, 10, 1000]),
)
def test_verdict_interval_and_p_never_contradict_each_other(
    baseline: Mapping[str, float],
    others: Sequence[Mapping[str, float]],
    confidence: float,
    margin: float,
    images: int | None,
) -> None:
    base = variant("base", baseline, images)
    pairs = [(variant(f"v{i}", runs, images), base) for i, runs in enumerate(others)]
    options = ReportSettings(confidence=confidence, margin=margin)
    for found in judge(pairs, [metric_named("test_accuracy")] * len(pairs), options):
        shown = found.verdict in (Verdict.BETTER, Verdict.WORSE, Verdict.SAME)
        assert bool(found.reason) != shown
        assert (found.p is None) == (found.interval is None) == (found.p_holm is None)
        assert not shown or found.p_adjusted is not None
        assert shown <= (min(found.counts) > 2)
        if found.p_adjusted is not None and found.interval is not None and found.verdict is not Verdict.SAME:
            clear = found.interval.excludes_zero
            assert clear == (found.verdict in (Verdict.BETTER, Verdict.WORSE))
            assert clear == (found.p_adjusted < 1 - confidence) or found.p_adjusted == pytest.approx(
                1 - confidence, rel=0.02
            )
        if found.verdict in (Verdict.BETTER, Verdict.WORSE):
            assert found.difference is not None
            assert (found.difference > 0) == (found.verdict is Verdict.BETTER)


def test_the_same_runs_give_the_same_conclusions(matrix: Any) -> None:
    first, second = collect(matrix.directory), collect(matrix.directory)
    assert first.conclusions == second.conclusions
    assert isinstance(first, Summary)
