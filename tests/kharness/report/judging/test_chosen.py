"""Pairs that were chosen by their results are judged among all that could have been chosen."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import scipy

from kharness.report.compare import compare, compare_lines
from kharness.report.judging.all_pairs import Chosen, all_pairs
from kharness.report.judging.blocks import contrasts
from kharness.report.judging.judgment import Comparison, Verdict, judge
from kharness.report.judging.sentences import comparison_lines, comparison_sentence
from kharness.report.judging.statistics import largest_range, largest_range_p
from kharness.report.metrics import metric_named
from kharness.report.regression import regressions
from kharness.report.report import told_regressions
from kharness.report.settings import ReportSettings
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown

from ..conftest import Make, written_json
from .conftest import Matrix, MatrixOf, end, seeds
from .test_judgment import variant

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
    """The interval equals SciPy's studentized range of four variants, guarded by the pair's own t test."""
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
    content = written_json(summary)
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
    """At most one in twenty of 40 tables of equal variants should claim a difference; pairs alone do more."""
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


@pytest.mark.parametrize("n", [3, 5])
def test_all_pairs_of_runs_that_move_together_have_the_errors_of_their_axes(n: int) -> None:
    """Three levels of an axis with little effect repeat the runs of another one; nothing differs."""
    cells = {f"{a}{b}": (a, b) for a, b in itertools.product("pqr", "xyz")}
    rng, wrong = np.random.default_rng(n), 0
    for _ in range(60):
        table = (rng.normal(size=(3, 1, n)) + 0.3 * rng.normal(size=(3, 3, n))).reshape(9, n)
        numbers = {
            name: {str(i): float(one) for i, one in enumerate(row)}
            for name, row in zip(cells, table, strict=True)
        }
        found = all_pairs(numbers, [str(i) for i in range(n)], ReportSettings(), cells=cells)
        wrong += bool(found.less)
    assert wrong <= 4


def test_a_chosen_pair_of_several_axes_counts_all_pairs_and_pairs_of_levels(
    tmp_path: Path, make: Make
) -> None:
    """Six pairs of four variants, and one of levels on each of two axes; planned: three and two."""
    axes = {"OPTIMIZER": ["sgd", "adam"], "BATCH_SIZE": ["32", "64"], "SEED": ["1", "2", "3", "4", "5"]}
    made = make.matrix(tmp_path / "m", axes)
    rng = np.random.default_rng(2)
    values = {cell: 0.9 + 0.01 * float(rng.normal()) for cell in itertools.product(*axes.values())}
    for cell, value in values.items():
        made.add(dict(zip(axes, cell, strict=True)), end(value))
    places = [f"{made.directory}:OPTIMIZER={o} BATCH_SIZE={b}" for o, b in (("sgd", 64), ("adam", 64))]
    (chosen,) = compare(places[0], places[1]).decisive
    rows = [("sgd", "64"), ("adam", "64"), ("sgd", "32"), ("adam", "32")]
    error = contrasts([[values[(*row, seed)] for seed in "12345"] for row in rows], rows)[0]
    half = scipy.stats.t.ppf(1 - 0.045 / 8 / 2, error.degrees) * error.standard_error
    guard = scipy.stats.t.ppf(0.975, 4) * error.own_standard_error
    assert (chosen.chosen_of, chosen.method) == (6, "split_plot")
    assert chosen.interval is not None
    assert chosen.interval.high - chosen.interval.low == pytest.approx(2 * max(half, guard))
    (planned,) = compare(f"{made.directory}:OPTIMIZER=sgd BATCH_SIZE=32", places[1]).decisive
    (of_matrix,) = [
        one for one in collect(made.directory).conclusions.comparisons if one.variant == "adam, batch_size=64"
    ]
    assert (planned.interval, planned.p_adjusted) == (of_matrix.interval, of_matrix.p_adjusted)
    assert Chosen([collect(made.directory).variants]).family == 8


def test_a_main_effect_that_is_worse_is_a_regression(tmp_path: Path, make: Make) -> None:
    """Adam loses 0.15 points, which shows over three sizes of batches and for none of them."""
    axes = {"OPTIMIZER": ["sgd", "adam"], "BATCH_SIZE": ["16", "32", "64"], "SEED": [*"12345"]}
    made = make.matrix(tmp_path / "m", axes)
    rng = np.random.default_rng(4)
    for cell in itertools.product(*axes.values()):
        value = 0.9 - 0.0015 * (cell[0] == "adam") + 0.001 * float(rng.normal())
        made.add(dict(zip(axes, cell, strict=True)), end(value))
    summary = collect(made.directory)
    assert regressions(summary.conclusions.comparisons) == []
    lines, code = told_regressions(summary, {"FAIL_ON_REGRESSION": "y"})
    assert (code, len(lines)) == (3, 1)
    assert lines[0].startswith("regression: optimizer=adam: test accuracy -0.1")
