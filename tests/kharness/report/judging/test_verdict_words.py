"""Verdicts state their digits, their ties and the rule of equal time."""

from __future__ import annotations

from typing import Any

import pytest

from kharness.report.judging.judgment import Verdict
from kharness.report.judging.sentences import (
    comparison_line,
    comparison_lines,
    comparison_sentence,
    interval_words,
    p_words,
)
from kharness.report.judging.statistics import Interval
from kharness.report.metrics import metric_named
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown

from ..conftest import written_json
from .conftest import MatrixOf, end, seeds


def test_a_verdict_after_ties_says_how_many_seeds_it_rests_on(matrix_of: MatrixOf) -> None:
    """On two of five seeds both diverged, so that nothing is compared there."""
    lost = [*end(None)[:1], {"event": "step", "global_step": 1, "nonfinite": ["train_loss"]}, *end(None)[1:]]
    sides = {"sgd": (0.90, 0.80, 0.70), "adam": (0.92, 0.83, 0.74)}
    matrix = matrix_of(**{name: {**seeds(*numbers), "4": lost, "5": lost} for name, numbers in sides.items()})
    (found,) = matrix.judged()
    assert (found.verdict, found.seeds, found.ties) == (Verdict.BETTER, ("1", "2", "3"), ("4", "5"))
    words = "by 3 of 5 seeds: neither side has a result on 2"
    assert comparison_line(found).count(words) == 1
    assert "It rests on 3 of 5 seeds: neither side has a result on 2" in comparison_sentence(found)
    content: Any = written_json(collect(matrix.made.directory))
    assert content["comparisons"][0]["tied_seeds"] == ["4", "5"]
    assert "| 3 of 5 |" in as_markdown(collect(matrix.made.directory))


def test_a_reason_stands_in_no_brackets_for_it_has_some(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70, 0.75, 0.85), adam=seeds(0.92, 0.86, 0.69, 0.81, 0.87))
    (found,) = matrix.judged()
    assert found.reason == "35 (15 to 75) more seeds for one of this size"
    assert comparison_sentence(found).partition(". ")[0] == (
        f"**adam** and sgd: no difference shown in test accuracy; {found.reason}"
    )


ALONE = "one common seed: chance cannot be separated from a difference"


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, [f"  adam   +25.00 points  undecided: {ALONE}", f"  adamw  +12.50 points  undecided: {ALONE}"]),
        (
            {"muon": {"1": 1.0}, "adopt": seeds(0.75, 0.5)},
            [
                "  adam   +25.00 points  undecided",
                "  adamw  +12.50 points  undecided",
                "  muon   +50.00 points  undecided",
                "  adopt  +25.00 points  undecided",
                f"  undecided, all 4: {ALONE}; a verdict takes 5 seeds of each",
            ],
        ),
    ],
)
def test_a_reason_that_many_verdicts_share_is_told_once(
    matrix_of: MatrixOf, more: dict[str, dict[str, float]], lines: list[str]
) -> None:
    """With what would decide; where few share it, each verdict has it."""
    matrix = matrix_of(sgd={"1": 0.50}, adam={"1": 0.75}, adamw={"1": 0.625}, **more)
    assert comparison_lines(collect(matrix.made.directory).conclusions)[2:] == lines


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.02, -0.00004, "-2.000 to -0.004"),
        (0.0000004, 0.02, "+0.00004 to +2.00000"),
        (-0.02, 0.00004, "-2.00 to 0.00"),
        (0.01, 0.02, "+1.00 to +2.00"),
    ],
)
def test_a_bound_never_rounds_to_the_other_side(low: float, high: float, words: str) -> None:
    assert interval_words(Interval(low, high, 0.95), metric_named("test_accuracy")) == words


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (0.0496, "0.0496"),
        (0.04996, "0.04996"),
        (0.0504, "0.05"),
        (0.0497, "0.0497"),
        (0.0312, "0.031"),
        (0.2, "0.2"),
    ],
)
def test_a_p_never_rounds_to_the_other_side(p: float, words: str) -> None:
    assert p_words(p) == words


def test_the_rule_of_equal_time_is_printed_as_it_is_applied(matrix_of: MatrixOf) -> None:
    """Half the steps with twice the batch, and three times as long: better all the same, and that is said."""
    small = {}
    for seed in range(1, 6):
        start, over = end(0.5 + seed / 100, training_seconds=10.0 + seed / 10)
        small[str(seed)] = [{**start, "steps_per_epoch": None}, over]
    large = {
        seed: [
            {**start, "batch_size": 20, "num_steps": 50},
            {
                **over,
                "steps_done": 50,
                "test_accuracy": 0.7 + int(seed) ** 2 / 1000,
                "training_seconds": 30.0,
            },
        ]
        for seed, (start, over) in small.items()
    }
    matrix = matrix_of(small=small, large=large)
    summary = collect(matrix.made.directory, {"CONFIG_REPORT_BUDGET_UNIT": "samples"})
    (found,) = summary.conclusions.comparisons
    page = as_markdown(summary)
    rule = "the better one did not train more than 50 % longer"
    assert found.verdict is Verdict.BETTER
    assert f"{rule}, where both did the same steps on as much data" in page
    by_time = collect(matrix.made.directory, {"CONFIG_REPORT_BUDGET_UNIT": "time"})
    assert [one.verdict for one in by_time.conclusions.comparisons] == [Verdict.NOT_COMPARABLE]
    assert f"{rule}. *No difference shown*" in as_markdown(by_time)
