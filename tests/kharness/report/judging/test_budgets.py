"""Sides are comparable with the same data and an equal budget of steps, samples, tokens or time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kharness.report.judging.budgets import Budget, budget_words
from kharness.report.judging.judgment import Verdict
from kharness.report.judging.sentences import comparison_sentence
from kharness.report.report import report_lines
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown

from .conftest import MatrixOf, end, seeds


def timed(accuracies: Sequence[float], seconds: Sequence[float]) -> dict[str, Any]:
    pairs = enumerate(zip(accuracies, seconds, strict=True), 1)
    return {str(seed): end(accuracy, training_seconds=time) for seed, (accuracy, time) in pairs}


def test_better_in_more_time_is_not_comparable(matrix_of: MatrixOf) -> None:
    """Ratios of 1.9, 2 and 2.1: of their logarithms the lower end is that of 1.76."""
    slow, fast = timed((0.92, 0.83, 0.74), (19.0, 20.0, 21.0)), timed((0.90, 0.80, 0.70), (10.0, 10.0, 10.0))
    matrix = matrix_of(sgd=fast, shampoo=slow)
    (found,) = matrix.judged()
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.difference == pytest.approx(0.03)
    assert found.reason == "better, but it had more time: 20.0 s vs 10.0 s of training, 2.00 times as long"
    assert found.interval is not None  # what there is stays to be seen
    (mirror,) = matrix.judged(BASELINE="shampoo")
    assert (mirror.verdict, mirror.reason[:34]) == (
        Verdict.NOT_COMPARABLE,
        "worse, but the baseline had more t",
    )
    for tolerance, verdict in (("0.75", Verdict.NOT_COMPARABLE), ("0.77", Verdict.BETTER)):
        assert matrix.judged(CONFIG_REPORT_TIME_TOLERANCE=tolerance)[0].verdict is verdict
    (loss,) = matrix.judged(CONFIG_REPORT_METRIC="training_seconds")
    assert loss.verdict is Verdict.WORSE  # time is what is compared here, not what it is compared in


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param((14.5, 14.6, 14.7), id="a little longer"),
        pytest.param((8.0, 11.0, 30.0), id="clocks that waver"),
        pytest.param((5.0, 5.1, 5.2), id="in less"),
        pytest.param((None, 20.0, 20.0), id="not known of all"),
    ],
)
def test_better_in_about_the_same_time_or_less_is_better(matrix_of: MatrixOf, seconds: Sequence[Any]) -> None:
    baseline = timed((0.90, 0.80, 0.70), (10.0, 10.0, 10.0))
    (found,) = matrix_of(sgd=baseline, adam=timed((0.92, 0.83, 0.74), seconds)).judged()
    assert found.verdict is Verdict.BETTER


@pytest.mark.parametrize("metric", ["energy_joules", "training_cpu_seconds"])
def test_a_smaller_cost_is_better_however_long_it_took(matrix_of: MatrixOf, metric: str) -> None:
    def runs(cost: float, seconds: float) -> dict[str, Any]:
        ends: dict[str, dict[str, Any]] = {
            seed: {metric: cost * (1 + int(seed) / 100), "training_seconds": seconds} for seed in "123"
        }
        return {seed: end(0.9, **fields) for seed, fields in ends.items()}

    matrix = matrix_of(sgd=runs(100.0, 10.0), frugal=runs(50.0, 20.0))
    summary = collect(matrix.made.directory, {"CONFIG_REPORT_METRIC": metric})
    (found,) = summary.conclusions.comparisons
    assert (found.verdict, found.reason) == (Verdict.BETTER, "")
    assert found.difference == pytest.approx(-51.0)
    assert "both sides had the same budget of samples. " in as_markdown(summary)


def test_a_smaller_cost_of_fewer_steps_is_not_comparable(matrix_of: MatrixOf) -> None:
    few = {seed: end(0.9, steps=50, energy_joules=50.0 + int(seed)) for seed in "123"}
    many = {seed: end(0.9, energy_joules=100.0 + int(seed)) for seed in "123"}
    (found,) = matrix_of(sgd=many, frugal=few).judged(CONFIG_REPORT_METRIC="energy_joules")
    assert found.verdict is Verdict.NOT_COMPARABLE


def test_other_budgets_are_not_comparable(matrix_of: MatrixOf) -> None:
    short = {seed: end(accuracy, steps=47) for seed, accuracy in seeds(0.92, 0.83, 0.74).items()}
    long = {seed: end(accuracy, steps=94) for seed, accuracy in seeds(0.90, 0.80, 0.70).items()}
    (found,) = matrix_of(sgd=long, adam=short).judged()
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.difference == pytest.approx(0.03)
    # 6 epochs of 64 and 5 batches of 10; 13 epochs and 3 batches
    assert found.reason == "budgets differ (samples 434 vs 862; steps 47 vs 94)"
    assert (found.p, found.interval, found.method) == (None, None, "")


def test_the_same_steps_with_other_tokens_are_not_comparable(matrix_of: MatrixOf) -> None:
    few = {seed: end(a, tokens_seen=1000) for seed, a in seeds(0.9, 0.8).items()}
    many = {seed: end(a, tokens_seen=2000) for seed, a in seeds(0.9, 0.7).items()}
    (found,) = matrix_of(sgd=few, adam=many).judged()
    assert found.reason == "budgets differ (tokens 2,000 vs 1,000)"


def batches(size: int, accuracies: Sequence[float], *, seconds: float) -> dict[str, Any]:
    """Six epochs of 900 samples, the last batch of each epoch being what is left."""
    per_epoch = -(-900 // size)
    sizes = {"batch_size": size, "steps_per_epoch": per_epoch, "dataset": {"name": "digits", "train": 900}}
    found = {}
    for seed, accuracy in enumerate(accuracies, 1):
        start, result = end(accuracy, steps=6 * per_epoch, training_seconds=seconds + seed / 100)
        found[str(seed)] = [{**start, **sizes}, result]
    return found


def test_equal_samples_in_other_batches_are_an_equal_budget(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(
        large=batches(128, (0.90, 0.80, 0.70), seconds=1), small=batches(32, (0.92, 0.83, 0.74), seconds=4)
    )
    (found,) = matrix.judged()
    assert (found.verdict, found.reason, found.budget_unit) == (Verdict.BETTER, "", "samples")
    said = "Equal samples: 5,400; steps 174 vs 48; training took 4.0 s against 1.0 s"
    assert said in comparison_sentence(found)
    summary = collect(matrix.made.directory)
    assert report_lines(summary)[-3] == "budget: equal samples: 5,400; steps 174 vs 48"
    assert "both sides had the same budget of samples, and the better one" in as_markdown(summary)


@pytest.mark.parametrize(
    ("unit", "verdict", "reason"),
    [
        ("samples", Verdict.BETTER, ""),
        ("steps", Verdict.NOT_COMPARABLE, "budgets differ (steps 174 vs 48)"),
        ("tokens", Verdict.NOT_COMPARABLE, "the number of tokens was not recorded"),
        (
            "time",
            Verdict.NOT_COMPARABLE,
            "better, but it had more time: 4.0 s vs 1.0 s of training, 3.94 times as long",
        ),
    ],
)
def test_the_unit_of_the_budget_is_chosen(
    matrix_of: MatrixOf, unit: str, verdict: Verdict, reason: str
) -> None:
    """The geometric mean of 4.01, 4.02 and 4.03 s over 1.01, 1.02 and 1.03 is 3.94."""
    matrix = matrix_of(
        large=batches(128, (0.90, 0.80, 0.70), seconds=1), small=batches(32, (0.92, 0.83, 0.74), seconds=4)
    )
    (found,) = matrix.judged(CONFIG_REPORT_BUDGET_UNIT=unit)
    assert (found.verdict, found.reason, found.budget_unit) == (verdict, reason, unit)


def test_by_time_other_samples_can_be_compared_and_unknown_times_cannot(matrix_of: MatrixOf) -> None:
    short = {s: end(a, steps=47, training_seconds=10.0 + a) for s, a in seeds(0.92, 0.83, 0.74).items()}
    long = {s: end(a, steps=94, training_seconds=10.0 + a) for s, a in seeds(0.90, 0.80, 0.70).items()}
    matrix = matrix_of(sgd=long, adam=short, lion=seeds(0.92, 0.83, 0.74))
    timed, unknown = matrix.judged(CONFIG_REPORT_BUDGET_UNIT="time")
    assert timed.verdict is Verdict.BETTER
    assert "Judged by time; samples 434 vs 862; steps 47 vs 94; training took 10.8 s" in comparison_sentence(
        timed
    )
    assert (unknown.verdict, unknown.reason) == (
        Verdict.NOT_COMPARABLE,
        "the time of a training is not known, or does not count because of other work on the machine",
    )


def test_other_data_are_not_comparable(matrix_of: MatrixOf) -> None:
    other = {seed: end(a) for seed, a in seeds(0.9, 0.8).items()}
    for records in other.values():
        records[0]["data_sha256"] = "abc"
    (found,) = matrix_of(sgd=seeds(0.9, 0.7), adam=other).judged()
    assert (found.verdict, found.reason) == (Verdict.NOT_COMPARABLE, "they trained on different data")


def test_budget_in_words() -> None:
    """Budgets of one step and one sample are written in the singular."""
    assert budget_words(Budget((1,), (60000,), (), (), 12.34)) == "1 step, 60,000 samples, 12.3 s"
    assert budget_words(Budget((1, 3), (1,), (), (), 2.0), with_time=False) == "1 to 3 steps, 1 sample"
    assert budget_words(Budget((), (), (), (), None)) == "not recorded"
