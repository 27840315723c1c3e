"""Matrices of several axes: a published split-plot experiment, and tables whose runs move together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy

from kharness.report.judging.blocks import contrasts, main_effect
from kharness.report.judging.evidence import Spending, of_contrast
from kharness.report.judging.factorial import crossed, moves_with_an_axis, split_plot
from kharness.report.judging.judgment import Verdict
from kharness.report.judging.sentences import comparison_lines
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown
from kharness.report.writing.html import as_html

from ..conftest import Make, written_json
from .conftest import end

# F. Yates, Complex experiments, J. Royal Statistical Society supplement 2 (1935): oats, six blocks, three
# varieties in whole plots (Victory, Golden Rain, Marvellous), four rates of nitrogen in subplots.
OATS = [
    [(111, 130, 157, 174), (117, 114, 161, 141), (105, 140, 118, 156)],
    [(74, 89, 81, 122), (64, 103, 132, 133), (70, 89, 104, 117)],
    [(61, 91, 97, 100), (70, 108, 126, 149), (96, 124, 121, 144)],
    [(62, 90, 100, 116), (80, 82, 94, 126), (63, 70, 109, 99)],
    [(68, 64, 112, 86), (60, 102, 89, 96), (89, 129, 132, 124)],
    [(53, 74, 118, 113), (89, 82, 86, 104), (97, 99, 119, 121)],
]
OATS_CELLS = [*itertools.product(("Victory", "Golden Rain", "Marvellous"), ("0", "0.2", "0.4", "0.6"))]
"""Variety and nitrogen of each row in a table of 12 variants by six seeds."""


def oats() -> list[list[float]]:
    return np.array(OATS, dtype=float).reshape(6, 12).T.tolist()


def test_the_errors_of_a_split_plot_experiment_are_the_published_ones() -> None:
    """Whole plots 601.33 of 10 degrees of freedom, subplots 177.08 of 45 (Venables and Ripley, Modern Applied
    Statistics with S, chapter 10), whose errors of differences are 7.08 and 4.44.
    """
    plot = split_plot(np.array(oats()), OATS_CELLS, 0.0)
    assert plot is not None
    (whole,) = plot.apart
    assert (whole.axes, whole.degrees, round(whole.square, 2)) == ((0,), 10, 601.33)
    assert (plot.pool.degrees, round(plot.pool.square, 2)) == (45, 177.08)
    variety = [(-1 / 4, 1 / 4, 0)[i // 4] for i in range(12)]
    nitrogen = [(-1 / 3, 0, 0, 1 / 3)[i % 4] for i in range(12)]
    found = [main_effect(oats(), OATS_CELLS, weights) for weights in (variety, nitrogen)]
    assert [(one.method, one.degrees) for one in found] == [("split_plot", 10), ("split_plot", 45)]
    assert [round(one.standard_error, 2) for one in found] == [7.08, 4.44]
    assert [round(one.mean, 2) for one in found] == [6.88, 44.0]


def test_two_variants_of_a_split_plot_have_the_textbook_error_of_their_difference() -> None:
    """Standard errors are those of Cochran and Cox, Experimental Designs, chapter 7.

    Two subplots of one whole plot differ with 2 E_b / r, whole plots with 2 (E_a + (b-1) E_b) / rb and
    Satterthwaite's degrees of freedom.
    """
    found = contrasts(oats(), OATS_CELLS)
    whole, sub, r, b = 601.3305556, 177.0833333, 6, 4
    assert {one.method for one in found} == {"split_plot"}
    # rows 1 to 3 have the baseline's variety, every fourth one its nitrogen
    assert [one.standard_error for one in found[:3]] == pytest.approx([math.sqrt(2 * sub / r)] * 3)
    expected = 2 * (whole + (b - 1) * sub) / (r * b)
    assert [one.standard_error for one in found[3:]] == pytest.approx([math.sqrt(expected)] * 8)
    degrees = (whole + 3 * sub) ** 2 / (whole**2 / 10 + (3 * sub) ** 2 / 45)
    assert [one.degrees for one in found[3:]] == pytest.approx([degrees] * 8)


@pytest.mark.parametrize(("n", "levels"), [(3, (2, 2)), (5, (2, 2)), (5, (3, 2)), (3, (3, 3, 2))])
def test_runs_that_repeat_those_of_another_level_add_no_evidence(n: int, levels: Sequence[int]) -> None:
    """The last axis does nothing at all: p of each comparison is that of a plain paired t test, or of the
    matrix without that axis.
    """
    rng = np.random.default_rng(n)
    cells = [*itertools.product(*(map(str, range(count)) for count in levels))]
    without = [cell for cell in cells if cell[-1] == "0"]
    rows = dict(zip([cell[:-1] for cell in without], rng.normal(size=(len(without), n)), strict=True))
    table = [rows[cell[:-1]].tolist() for cell in cells]
    found = dict(zip(cells[1:], contrasts(table, cells), strict=True))
    alone = dict(
        zip(without[1:], contrasts([table[cells.index(cell)] for cell in without], without), strict=True)
    )
    for cell, one in found.items():
        if cell[:-1] == cells[0][:-1]:
            assert (one.mean, one.variance) == (0, 0)
        else:
            assert one.mean == pytest.approx(alone[(*cell[:-1], "0")].mean)
            assert one.degrees <= (len(without) - 1) * (n - 1)
    if levels == (2, 2):
        paired = scipy.stats.ttest_rel(table[2], table[0])
        for cell in (("1", "0"), ("1", "1")):
            t = found[cell].mean / found[cell].standard_error
            assert (t, found[cell].degrees) == pytest.approx((paired.statistic, n - 1))


@pytest.mark.parametrize(
    ("levels", "n", "moves"),
    [
        ((2, 2), 3, "first axis"),
        ((2, 2), 5, "both"),
        ((3, 2), 3, "last axis"),
        ((3, 2), 5, "nothing"),
    ],
)
def test_of_matrices_without_a_difference_one_in_twenty_claims_one_at_most(
    levels: tuple[int, int], n: int, moves: str
) -> None:
    """Each verdict counted, also of main effects (+ two Monte Carlo errors). As independent runs, 15 % of
    those where an axis is inert would claim something.
    """
    rng, wrong = np.random.default_rng([n, *levels, len(moves)]), 0
    cells = [(str(i), str(j)) for i in range(levels[0]) for j in range(levels[1])]
    first = 10 * (moves in ("first axis", "both"))
    last = 10 * (moves in ("last axis", "both"))
    weights = [
        [((cell[axis] == level) * 1.0 - (cell[axis] == "0")) * levels[axis] / len(cells) for cell in cells]
        for axis in (0, 1)
        for level in map(str, range(1, levels[axis]))
    ]
    family = len(cells) - 1 + len(weights)
    spending = Spending(0.05, (len(cells) - 1) / family, n, {n: 1.0})
    for _ in range(200):
        of_seed = first * rng.normal(size=(levels[0], 1, n)) + last * rng.normal(size=(1, levels[1], n))
        table = (of_seed + rng.normal(size=(*levels, n))).reshape(-1, n).tolist()
        seen = [of_contrast(one, spending, is_last=False) for one in contrasts(table, cells)]
        of_effect = Spending(0.05, 1 / family, n, {n: 1.0})
        seen += [of_contrast(main_effect(table, cells, one), of_effect, is_last=False) for one in weights]
        wrong += any(one.interval is not None and one.interval.excludes_zero for one in seen)
    assert wrong / 200 < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 200)


@pytest.mark.parametrize(
    ("levels", "n", "deviations", "least"),
    [(("012", "01", "01"), 5, 2.5, 80), (("012", "012", "01"), 3, 4, 65)],
)
def test_what_is_independent_is_found_as_by_one_pooled_error(
    levels: Sequence[str], n: int, deviations: float, least: int
) -> None:
    """Variants whose runs do not move together: most main effects of the last axis, also with three seeds."""
    rng, found = np.random.default_rng(8), 0
    cells = [*itertools.product(*levels)]
    weights = [(cell[2] == "1") * 2 / len(cells) - (cell[2] == "0") * 2 / len(cells) for cell in cells]
    share = 1 / (len(cells) - 1 + sum(map(len, levels)) - 3)
    for _ in range(100):
        table = rng.normal(size=(len(cells), n))
        table[1::2] += deviations
        one = main_effect(table.tolist(), cells, weights)
        seen = of_contrast(one, Spending(0.05, share, n, {n: 1.0}), is_last=False)
        found += seen.interval is not None and seen.interval.low > 0
    assert found >= least


def test_axes_whose_combinations_are_not_all_there_count_as_one() -> None:
    product = [*itertools.product("ab", "012", "xy")]
    assert crossed(product) == [(0,), (1,), (2,)]
    # the sparsity of a pruning that has one
    pruned = [("none", ""), ("magnitude", "0.5"), ("magnitude", "0.9"), ("random", "0.5")]
    assert crossed([(optimizer, *one) for optimizer in ("sgd", "adam") for one in pruned]) == [(0,), (1, 2)]
    assert crossed([("a", "0"), ("a", "1"), ("b", "0")]) == []
    assert crossed([("a", "0"), ("b", "0"), ("c", "0")]) == []
    assert crossed([("a", "0"), ("a", "1"), ("b", "0"), ("b", "1"), ("b", "1")]) == []


def test_where_a_combination_is_missing_runs_that_move_together_are_judged_by_their_own_pairs() -> None:
    """Five of the six combinations: of 50 tables whose last axis is inert, and of 50 independent ones."""
    rng = np.random.default_rng(2)
    cells = [*itertools.product("012", "01")][:5]
    methods = []
    for moving in (10.0, 0.0):
        for _ in range(50):
            table = np.repeat(moving * rng.normal(size=(3, 4)), 2, axis=0)[:5] + rng.normal(size=(5, 4))
            methods.append({one.method for one in contrasts(table.tolist(), cells)})
            assert methods[-1] == {"paired"} or not moves_with_an_axis(table, cells)
    assert methods[:50] == [{"paired"}] * 50
    assert sum(one == {"paired"} for one in methods[50:]) < 35


def test_a_matrix_of_several_axes_tells_main_effects(tmp_path: Path, make: Make) -> None:
    """Adam gains 1 point at each batch size, and batches of 64 nothing."""
    axes = {"OPTIMIZER": ["sgd", "adam"], "BATCH_SIZE": ["32", "64"], "SEED": ["1", "2", "3", "4", "5"]}
    made = make.matrix(tmp_path / "m", axes)
    rng = np.random.default_rng(1)
    values: dict[tuple[str, ...], float] = {}
    for cell in itertools.product(*axes.values()):
        values[cell] = 0.9 + 0.01 * (cell[0] == "adam") + 0.001 * float(rng.normal())
        made.add(dict(zip(axes, cell, strict=True)), end(values[cell]))
    summary = collect(made.directory, {})
    adam, batch = summary.conclusions.effects
    assert (adam.variant, adam.baseline, adam.over) == ("optimizer=adam", "optimizer=sgd", ("BATCH_SIZE",))
    assert (batch.variant, batch.baseline, batch.over) == ("batch_size=64", "batch_size=32", ("OPTIMIZER",))
    assert (adam.verdict, batch.verdict) == (Verdict.BETTER, Verdict.NOT_SHOWN)
    mean = {o: np.mean([v for cell, v in values.items() if cell[0] == o]) for o in axes["OPTIMIZER"]}
    assert adam.difference == pytest.approx(mean["adam"] - mean["sgd"])
    assert (adam.counts, adam.seeds) == ((5, 5), ("1", "2", "3", "4", "5"))
    assert len(summary.conclusions.comparisons) == 3
    told = written_json(summary)["main_effects"]
    assert [(one["variant"], one["over"], one["verdict"]) for one in told] == [
        ("optimizer=adam", ["BATCH_SIZE"], "better"),
        ("batch_size=64", ["OPTIMIZER"], "no difference shown"),
    ]
    sentence = (
        "**optimizer=adam** is better than optimizer=sgd in test accuracy, over the levels of batch_size"
    )
    assert sentence in as_markdown(summary)
    assert "| optimizer=adam vs optimizer=sgd | better |" in as_markdown(summary)
    page = as_html(summary)
    assert "<h3>Main effects</h3>" in page
    assert "is better than optimizer=sgd in test accuracy, over the levels of batch_size" in page
    lines = comparison_lines(summary.conclusions)
    place = lines.index("main effects, each the mean over the levels of the other axes:")
    assert lines[place + 1].startswith("  optimizer=adam vs optimizer=sgd  +")
    of_sgd = collect(made.directory, {"BASELINE": "OPTIMIZER=sgd"}).conclusions
    assert [one.variant for one in of_sgd.effects] == ["optimizer=adam"]


def test_a_main_effect_waits_for_its_variants_and_falls_with_them(tmp_path: Path, make: Make) -> None:
    axes = {"OPTIMIZER": ["sgd", "adam"], "BATCH_SIZE": ["32", "64"], "SEED": ["1", "2", "3"]}
    made = make.matrix(tmp_path / "m", axes)
    for i, cell in enumerate(itertools.product(*axes.values())):
        if cell == ("adam", "64", "3"):
            made.add(dict(zip(axes, cell, strict=True)), end(None), status="failed", reason="exit code 7")
        else:
            made.add(dict(zip(axes, cell, strict=True)), end(0.5 + i / 100))
    adam, batch = collect(made.directory, {}).conclusions.effects
    assert (adam.verdict, batch.verdict) == (Verdict.NOT_COMPARABLE, Verdict.NOT_COMPARABLE)
    assert adam.reason.startswith("adam, batch_size=64: ")
    assert adam.interval is None


def test_a_plain_matrix_has_no_main_effects(tmp_path: Path, make: Make) -> None:
    axes = {"OPTIMIZER": ["sgd", "adam", "adamw"], "SEED": ["1", "2", "3"]}
    made = make.matrix(tmp_path / "m", axes)
    for i, cell in enumerate(itertools.product(*axes.values())):
        made.add(dict(zip(axes, cell, strict=True)), end(0.5 + i * i / 100))
    summary = collect(made.directory, {})
    assert summary.conclusions.effects == []
    assert written_json(summary)["main_effects"] == []
    assert "Main effects" not in as_html(summary)
