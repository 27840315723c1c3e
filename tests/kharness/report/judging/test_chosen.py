"""Pairs that were chosen by their results are judged among all that could have been chosen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy

from kharness.report.compare import compare, compare_lines
from kharness.report.judging.judgement import Chosen, Comparison, Verdict, judge
from kharness.report.judging.sentences import comparison_lines, comparison_sentence
from kharness.report.judging.statistics import largest_range, largest_range_p
from kharness.report.metrics import metric_named
from kharness.report.settings import ReportSettings
from kharness.report.summary import collect
from kharness.report.writing.files import as_json, as_markdown

from .conftest import Matrix, MatrixOf, seeds
from .test_judgement import variant

NUMBERS = {
    "sgd": (0.900, 0.910, 0.930, 0.920, 0.905),
    "adam": (0.902, 0.913, 0.931, 0.921, 0.909),
    "lion": (0.890, 0.903, 0.921, 0.909, 0.893),
    "muon": (0.911, 0.919, 0.942, 0.929, 0.918),
}


@pytest.fixture
def matrix(matrix_of: MatrixOf) -> Matrix:
    return matrix_of(**{name: seeds(*numbers) for name, numbers in NUMBERS.items()})


@pytest.mark.parametrize(("variants", "degrees"), [(2, 4), (3, 4), (5, 8), (10, 36), (30, 116)])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_the_largest_of_all_pairs_is_scipy_s_studentized_range(
    variants: int, degrees: int, alpha: float
) -> None:
    oracle = scipy.stats.studentized_range
    found = largest_range(variants, degrees, alpha)
    assert found * np.sqrt(2) == pytest.approx(oracle.ppf(1 - alpha, variants, degrees), rel=1e-6)
    assert largest_range_p(2.5, variants, degrees) == pytest.approx(
        oracle.sf(2.5 * np.sqrt(2), variants, degrees), rel=1e-6
    )


def test_the_interval_of_a_chosen_pair_is_tukey_s(matrix: Matrix) -> None:
    """By hand: variant + seed, the studentized range of four variants at 95.5 %, and the pair's own t test."""
    table = np.array([*NUMBERS.values()])
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    error = np.sqrt((rest**2).sum() / 12 / 5)
    half = scipy.stats.studentized_range.ppf(0.955, 4, 12) * error
    found = chosen_pair(matrix.made.directory, "muon", "lion")
    assert found.interval is not None
    assert (found.chosen_of, found.method) == (6, "blocked")
    assert found.difference == pytest.approx(-0.0206)
    pairs = table[2] - table[3]
    guard = scipy.stats.t.ppf(0.975, 4) * pairs.std(ddof=1) / np.sqrt(5)
    assert found.interval.high - found.interval.low == pytest.approx(2 * max(half, guard), rel=1e-6)
    p = scipy.stats.studentized_range.sf(0.0206 / error, 4, 12) / 0.9
    own = scipy.stats.ttest_rel(table[2], table[3]).pvalue
    assert found.p_adjusted == pytest.approx(max(p, own), rel=1e-6)


def chosen_pair(directory: Path, a: str, b: str) -> Comparison:
    (found,) = compare(f"{directory}:OPTIMIZER={a}", f"{directory}:OPTIMIZER={b}").decisive
    return found


def test_a_planned_pair_is_judged_as_in_its_matrix(matrix: Matrix) -> None:
    directory = matrix.made.directory
    of_matrix = {one.variant: one for one in matrix.judged()}
    for name in ("adam", "lion", "muon"):
        found = chosen_pair(directory, "sgd", name)
        assert (found.interval, found.chosen_of) == (of_matrix[name].interval, 0)
    compared = compare(f"{directory}:OPTIMIZER=sgd", f"{directory}:OPTIMIZER=muon")
    assert not any("chosen" in line for line in compare_lines(compared))
    assert chosen_pair(directory, "muon", "sgd").chosen_of == 6


def test_what_was_chosen_says_so(matrix: Matrix) -> None:
    directory = matrix.made.directory
    words = "chosen after looking: judged among all 6 pairs of the matrix"
    compared = compare(f"{directory}:OPTIMIZER=lion", f"{directory}:OPTIMIZER=muon")
    assert any(words in line for line in compare_lines(compared))
    summary = collect(directory, {"BASELINE": "lion"})
    assert words in comparison_lines(summary.conclusions)[1]
    assert words in as_markdown(summary)
    content = json.loads(json.dumps(as_json(summary)))
    assert [one["chosen_of_pairs"] for one in content["comparisons"]] == [6, 6, 6]
    assert "among all 6 pairs" in comparison_sentence(summary.conclusions.comparisons[0])
    for baseline in ("sgd", "OPTIMIZER=sgd"):
        assert words not in as_markdown(collect(directory, {"BASELINE": baseline}))


def test_a_baseline_that_was_planned_was_not_chosen(matrix: Matrix) -> None:
    path = matrix.made.directory / "matrix.json"
    plan = json.loads(path.read_text())
    path.write_text(json.dumps({**plan, "settings": {"REPORT_BASELINE": "OPTIMIZER=lion"}}))
    assert {one.chosen_of for one in matrix.judged()} == {0}
    assert {one.baseline for one in matrix.judged()} == {"lion"}
    assert {one.chosen_of for one in matrix.judged(BASELINE="sgd")} == {6}


def test_the_best_against_the_worst_of_variants_that_are_alike() -> None:
    """Of 40 tables without a difference one in twenty may claim something; judged alone many do."""
    rng, wrong, alone = np.random.default_rng(3), 0, 0
    for _ in range(40):
        table = 0.5 + 0.01 * rng.normal(size=(10, 5))
        rows = [variant(f"v{i}", seeds(*row)) for i, row in enumerate(table.tolist())]
        order = np.argsort(table.mean(1))
        pair = [(rows[order[-1]], rows[order[0]])]
        metrics = [metric_named("test_accuracy")]
        (among_all,) = judge(pair, metrics, ReportSettings(), chosen=Chosen([rows]))
        (one_pair,) = judge(pair, metrics, ReportSettings())
        wrong += among_all.verdict is not Verdict.NOT_SHOWN
        alone += one_pair.verdict is not Verdict.NOT_SHOWN
    assert wrong <= 4
    assert alone >= 8


def test_two_matrices_and_two_variants_were_not_chosen(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd=seeds(*NUMBERS["sgd"]), muon=seeds(*NUMBERS["muon"]))
    (planned,) = matrix.judged()
    (turned,) = matrix.judged(BASELINE="muon")
    assert planned.interval is not None
    assert turned.interval is not None
    assert turned.interval.high == pytest.approx(-planned.interval.low)
    assert "chosen" not in as_markdown(collect(matrix.made.directory, {"BASELINE": "muon"}))
