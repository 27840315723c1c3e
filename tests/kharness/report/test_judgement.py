"""Verdicts about run directories as trainings leave them, checked by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.report.errors import ReportError
from kharness.report.judgement import Comparison, Verdict, judge
from kharness.report.metrics import metric_named
from kharness.report.report import check_judging, report_lines
from kharness.report.runs import RunData
from kharness.report.sentences import comparison_sentence
from kharness.report.settings import ReportSettings
from kharness.report.summary import Cell, Summary, Variant, collect
from kharness.report.writers import as_json, as_markdown


def end(test_accuracy: float | None, *, steps: int = 100, **fields: object) -> list[dict[str, Any]]:
    """A journal of a start and an end, whose numbers are all that a verdict needs."""
    start = {"event": "start", "num_steps": steps, "batch_size": 10, "steps_per_epoch": 7, "seed": 1}
    result = {"event": "end", "status": "complete", "steps_done": steps, "test_accuracy": test_accuracy}
    return [{**start, "dataset": {"name": "digits", "train": 64}}, {**result, **fields}]


class Matrix:
    """Optimisers as variants; each seed has one accuracy."""

    def __init__(
        self, tmp_path: Path, make: SimpleNamespace, variants: Mapping[str, Mapping[str, Any]]
    ) -> None:
        seeds = sorted({seed for runs in variants.values() for seed in runs})
        self.made = make.matrix(tmp_path / "matrix", {"OPTIMIZER": list(variants), "SEED": seeds})
        for name, runs in variants.items():
            for seed, records in runs.items():
                journal = records if isinstance(records, list) else end(records)
                self.made.add({"OPTIMIZER": name, "SEED": seed}, journal)

    def judged(self, **given: str) -> Sequence[Comparison]:
        return collect(self.made.directory, given).conclusions.comparisons


@pytest.fixture
def matrix_of(tmp_path: Path, make: SimpleNamespace) -> Any:
    return lambda **variants: Matrix(tmp_path, make, variants)


def seeds(*accuracies: float) -> dict[str, float]:
    return {str(seed): accuracy for seed, accuracy in enumerate(accuracies, 1)}


def test_a_clear_difference_in_pairs_is_better_and_its_mirror_worse(matrix_of: Any) -> None:
    """Differences of 2, 3 and 4 points: mean 3, deviation 1, t = 3·√3 of 2 degrees, p = 0.0351."""
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    (found,) = matrix.judged()
    assert (found.variant, found.baseline, found.verdict, found.reason) == ("adam", "sgd", Verdict.BETTER, "")
    assert (found.method, found.seeds, found.counts) == ("paired", ("1", "2", "3"), (3, 3))
    assert found.difference == pytest.approx(0.03)
    # of two degrees of freedom: P(|T| > t) = 1 - t/√(2 + t²), and t(97.5 %) = 4.302653
    assert found.p == pytest.approx(1 - math.sqrt(27 / 29))
    assert found.p_holm == found.p
    half = 4.302652729911275 * 0.01 / math.sqrt(3)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (
        pytest.approx(0.03 - half),
        pytest.approx(0.03 + half),
    )
    assert found.effect == pytest.approx(3 / math.sqrt(math.pi))
    (mirror,) = matrix.judged(BASELINE="adam")
    assert (mirror.variant, mirror.verdict, mirror.difference) == ("sgd", Verdict.WORSE, pytest.approx(-0.03))


def test_a_smaller_loss_is_better(matrix_of: Any) -> None:
    low = {seed: end(None, test_loss=loss) for seed, loss in zip("123", (0.10, 0.20, 0.30), strict=True)}
    high = {seed: end(None, test_loss=loss) for seed, loss in zip("123", (0.12, 0.23, 0.34), strict=True)}
    (found,) = matrix_of(sgd=high, adam=low).judged(CONFIG_REPORT_METRIC="test_loss")
    assert (found.verdict, found.difference) == (Verdict.BETTER, pytest.approx(-0.03))


def test_what_is_not_shown_says_how_many_seeds_would_show_it(matrix_of: Any) -> None:
    """Differences of -1, 1 and 3 points: d_z = 1/2, and 34 pairs see that in 80 % of all cases."""
    (found,) = matrix_of(sgd=seeds(0.5, 0.5, 0.5), adam=seeds(0.49, 0.51, 0.53)).judged()
    assert (found.verdict, found.more_seeds) == (Verdict.NOT_SHOWN, 31)
    assert found.reason == "31 more seeds would be needed to see one of this size"


def test_a_difference_that_is_hardly_one_needs_more_seeds_than_anyone_has(matrix_of: Any) -> None:
    (found,) = matrix_of(sgd=seeds(0.5, 0.5, 0.5), adam=seeds(0.49, 0.51, 0.5001)).judged()
    assert (found.verdict, found.more_seeds) == (Verdict.NOT_SHOWN, None)
    assert found.reason == "more than 997 more seeds would be needed to see one of this size"


def timed(accuracies: Sequence[float], seconds: Sequence[float]) -> dict[str, Any]:
    pairs = enumerate(zip(accuracies, seconds, strict=True), 1)
    return {str(seed): end(accuracy, training_seconds=time) for seed, (accuracy, time) in pairs}


def test_better_in_more_time_is_not_comparable(matrix_of: Any) -> None:
    """Ratios of 1.9, 2 and 2.1: of their logarithms the lower end is that of 1.76."""
    slow, fast = timed((0.92, 0.83, 0.74), (19.0, 20.0, 21.0)), timed((0.90, 0.80, 0.70), (10.0, 10.0, 10.0))
    matrix = matrix_of(sgd=fast, shampoo=slow)
    (found,) = matrix.judged()
    assert (found.verdict, found.difference) == (Verdict.NOT_COMPARABLE, pytest.approx(0.03))
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
def test_better_in_about_the_same_time_or_less_is_better(matrix_of: Any, seconds: Sequence[Any]) -> None:
    baseline = timed((0.90, 0.80, 0.70), (10.0, 10.0, 10.0))
    (found,) = matrix_of(sgd=baseline, adam=timed((0.92, 0.83, 0.74), seconds)).judged()
    assert found.verdict is Verdict.BETTER


def test_other_budgets_are_not_comparable(matrix_of: Any) -> None:
    short = {seed: end(accuracy, steps=47) for seed, accuracy in seeds(0.92, 0.83, 0.74).items()}
    long = {seed: end(accuracy, steps=94) for seed, accuracy in seeds(0.90, 0.80, 0.70).items()}
    (found,) = matrix_of(sgd=long, adam=short).judged()
    assert (found.verdict, found.difference) == (Verdict.NOT_COMPARABLE, pytest.approx(0.03))
    # 6 epochs of 64 and 5 batches of 10; 13 epochs and 3 batches
    assert found.reason == "budgets differ (steps 47 vs 94, samples 434 vs 862)"
    assert (found.p, found.interval, found.method) == (None, None, "")


def test_the_same_steps_with_other_tokens_are_not_comparable(matrix_of: Any) -> None:
    few = {seed: end(a, tokens_seen=1000) for seed, a in seeds(0.9, 0.8).items()}
    many = {seed: end(a, tokens_seen=2000) for seed, a in seeds(0.9, 0.7).items()}
    (found,) = matrix_of(sgd=few, adam=many).judged()
    assert found.reason == "budgets differ (tokens 2,000 vs 1,000)"


def test_other_data_are_not_comparable(matrix_of: Any) -> None:
    other = {seed: end(a) for seed, a in seeds(0.9, 0.8).items()}
    for records in other.values():
        records[0]["data_sha256"] = "abc"
    (found,) = matrix_of(sgd=seeds(0.9, 0.7), adam=other).judged()
    assert (found.verdict, found.reason) == (Verdict.NOT_COMPARABLE, "they trained on different data")


def test_seeds_without_a_partner_are_named_and_left_out(matrix_of: Any) -> None:
    matrix = matrix_of(sgd={"1": 0.9, "2": 0.8, "3": 0.7, "4": 0.1}, adam={"1": 0.92, "2": 0.83, "3": 0.74})
    (found,) = matrix.judged()
    assert (found.seeds, found.left_out) == (("1", "2", "3"), ("optimizer-sgd_seed-4",))
    assert found.difference == pytest.approx(0.03)
    assert "Without a partner of the same seed, left out: optimizer-sgd_seed-4" in comparison_sentence(found)


def test_without_a_common_seed_the_groups_are_independent(matrix_of: Any) -> None:
    """Means 0.8 and 0.92, deviations 0.01 both, three each: t = 0.12/√(0.0002/3) of 4 degrees."""
    matrix = matrix_of(sgd={"1": 0.79, "2": 0.80, "3": 0.81}, adam={"4": 0.91, "5": 0.92, "6": 0.93})
    (found,) = matrix.judged()
    assert (found.method, found.seeds, found.verdict) == ("welch", (), Verdict.BETTER)
    half = 2.7764451051977934 * math.sqrt(0.0002 / 3)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.12 - half)
    assert "no seed is common to both: Welch's t test of 3 against 3 runs" in comparison_sentence(found)


@pytest.mark.parametrize(
    ("sgd", "adam", "verdict", "reason"),
    [
        ({"1": 0.9}, {"1": 0.5}, "undecided", "one common seed: chance cannot be told from a difference"),
        (
            {"1": 0.9},
            {"2": 0.5, "3": 0.6},
            "undecided",
            "a single run on one side: chance cannot be told from a difference",
        ),
        (
            {"1": 0.5, "2": 0.75},
            {"1": 0.5, "2": 0.75},
            "no difference shown",
            "all 2 pairs are exactly equal",
        ),
        (
            {"1": 0.5, "2": 0.75},
            {"1": 0.25, "2": 0.5},
            "undecided",
            "every pair differs by the same amount, so the spread of chance is unknown",
        ),
        (
            {"1": 0.5, "2": 0.5},
            {"3": 0.25, "4": 0.25},
            "undecided",
            "no side varies between its runs, so the spread of chance is unknown",
        ),
        ({"1": 0.5, "2": 0.5}, {"1": None}, "undecided", "no complete run of adam has test accuracy"),
        ({"1": 0.5, "2": 0.5}, {}, "undecided", "no complete run of adam has test accuracy"),
    ],
)
def test_where_there_are_no_statistics_it_is_said_in_words(
    matrix_of: Any, sgd: Any, adam: Any, verdict: str, reason: str
) -> None:
    matrix = matrix_of(sgd=sgd, adam=adam)
    if not adam:
        matrix.made.plan({"OPTIMIZER": "adam", "SEED": "1"})
    (found,) = matrix.judged()
    assert (str(found.verdict), found.reason) == (verdict, reason)
    assert (found.p, found.p_holm, found.interval, found.effect, found.more_seeds) == (None,) * 5


def test_runs_that_ended_badly_stand_beside_the_verdict(matrix_of: Any, make: SimpleNamespace) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70, 0.6), adam=seeds(0.92, 0.83, 0.74))
    diverged = end(None, error="NonFiniteLoss")
    diverged[1]["status"] = "failed"
    matrix.made.add(
        {"OPTIMIZER": "adam", "SEED": "4"}, diverged, status="failed", reason="the loss of step 7 is nan"
    )
    matrix.made.add({"OPTIMIZER": "adam", "SEED": "5"}, end(None))
    (found,) = matrix.judged()
    assert (found.verdict, found.failed) == (Verdict.BETTER, (1, 0))
    assert found.failures == (
        "optimizer-adam_seed-4: failed (the loss of step 7 is nan)",
        "optimizer-adam_seed-5: complete without test accuracy",
    )
    lines = report_lines(collect(matrix.made.directory))
    assert lines[-1].startswith(
        "  adam  +3.00 (+0.52 to +5.48) points  better, p 0.035  [2 runs not counted]"
    )


def test_several_comparisons_are_corrected_and_hold_at_once(matrix_of: Any) -> None:
    """p of 0.0351 twice is 0.0702 after Holm's correction, and no longer enough."""
    matrix = matrix_of(
        sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74), adamw=seeds(0.92, 0.83, 0.74)
    )
    adam, adamw = matrix.judged()
    p = 1 - math.sqrt(27 / 29)
    assert [c.p_holm for c in (adam, adamw)] == pytest.approx([2 * p, 2 * p])
    assert [c.verdict for c in (adam, adamw)] == [Verdict.NOT_SHOWN] * 2
    assert adam.interval is not None
    assert adam.interval.level == pytest.approx(0.975)


def test_comparisons_that_cannot_be_made_cost_the_others_nothing(matrix_of: Any) -> None:
    single = {"1": 0.99}
    adam, adamw = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74), adamw=single).judged()
    assert (adam.verdict, adamw.verdict) == (Verdict.BETTER, Verdict.UNDECIDED)
    assert adam.p_holm == adam.p


def test_where_holm_alone_would_see_a_difference_it_is_said(matrix_of: Any) -> None:
    """p = 0.0351 stays 0.0351 when the other one is far smaller, but its interval of 97.5 % holds zero."""
    matrix = matrix_of(
        sgd=seeds(0.900, 0.800, 0.700), adam=seeds(0.92, 0.83, 0.74), adamw=seeds(0.93, 0.8301, 0.7302)
    )
    adam, adamw = matrix.judged()
    assert adamw.verdict is Verdict.BETTER
    assert (adam.verdict, adam.p_holm, adam.holm_disagrees) == (Verdict.NOT_SHOWN, adam.p, True)
    assert "Holm's correction alone would call this a difference" in comparison_sentence(adam)


def test_without_the_metric_the_last_validation_decides_and_it_is_said(
    tmp_path: Path, make: SimpleNamespace
) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"], "SEED": ["1", "2"]})
    for name, accuracies in (("sgd", (0.5, 0.6)), ("adam", (0.7, 0.9))):
        for seed, accuracy in zip("12", accuracies, strict=True):
            made.add({"OPTIMIZER": name, "SEED": seed}, make.training([1.0], [accuracy]))
    conclusions = collect(made.directory).conclusions
    assert conclusions.metric.name == "val_accuracy"
    assert (
        conclusions.metric_note == "no run has test_accuracy, so val_accuracy of the last validation decides"
    )
    assert conclusions.comparisons[0].difference == pytest.approx(0.25)
    assert f"Note: {conclusions.metric_note}." in as_markdown(collect(made.directory))


def test_a_metric_that_no_run_has_decides_nothing(matrix_of: Any) -> None:
    matrix = matrix_of(sgd=seeds(0.9, 0.8), adam=seeds(0.9, 0.7))
    (found,) = matrix.judged(CONFIG_REPORT_METRIC="val_perplexity")
    assert found.reason == "no complete run of adam has val perplexity"


def test_the_test_set_is_read_from_the_end_record_alone(tmp_path: Path, make: SimpleNamespace) -> None:
    """Whatever a training evaluated on the test set on its way, the last reading is the result."""
    records = make.training([1.0, 1.0], [0.5, 0.5], 0.6)
    records.insert(2, {"event": "eval", "global_step": 1, "split": "test", "test_accuracy": 0.99})
    make.journal(tmp_path / "run", records)
    summary = collect(tmp_path / "run")
    assert summary.cells[0].number(metric_named("test_accuracy")) == 0.6
    with pytest.raises(ReportError, match="the best of several looks at the test set is no test") as caught:
        check_judging(tmp_path / "run", {"CONFIG_REPORT_METRIC": "best_test_accuracy"})
    assert caught.value.hint.startswith("test_accuracy is read once")


def test_confidence_widens_the_interval(matrix_of: Any) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    (found,) = matrix.judged(CONFIG_REPORT_CONFIDENCE="0.99")
    assert (found.verdict, found.interval and found.interval.level) == (
        Verdict.NOT_SHOWN,
        pytest.approx(0.99),
    )


def test_settings_come_from_the_plan_and_the_command_line_wins(matrix_of: Any) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    path = matrix.made.directory / "matrix.json"
    plan = json.loads(path.read_text())
    plan["settings"] = {"REPORT_BASELINE": "adam", "REPORT_CONFIDENCE": 0.9, "MATRIX_JOBS": 2}
    path.write_text(json.dumps(plan))
    stored = collect(matrix.made.directory)
    assert (stored.settings.confidence, stored.conclusions.baseline) == (0.9, "adam")
    overridden = collect(matrix.made.directory, {"BASELINE": "sgd", "CONFIG_REPORT_CONFIDENCE": "0.99"})
    assert (overridden.settings.confidence, overridden.conclusions.baseline) == (0.99, "sgd")


def test_a_single_run_is_judged_by_its_own_configuration(tmp_path: Path, make: SimpleNamespace) -> None:
    make.journal(tmp_path / "run", make.training([1.0], [0.5], 0.5))
    (tmp_path / "run" / "config.py").write_text(
        "REPORT_TARGET = 'val_accuracy>=0.4'\nREPORT_CONFIDENCE = 0.8\n"
    )
    summary = collect(tmp_path / "run")
    assert (summary.settings.target, summary.settings.confidence) == ("val_accuracy>=0.4", 0.8)
    assert summary.conclusions.times[0].variants[0].median_step == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"CONFIG_REPORT_CONFIDENCE": "95"},
            "CONFIG_REPORT_CONFIDENCE=95 is not a number from 0.5 to below 1",
        ),
        ({"CONFIG_REPORT_CONFIDENCE": "high"}, "CONFIG_REPORT_CONFIDENCE=high is not a number"),
        ({"CONFIG_REPORT_METRC": "test_loss"}, "CONFIG_REPORT_METRC is no option of the report"),
        ({"CONFIG_REPORT_TARGET": "0.9"}, "REPORT_TARGET=0.9 is not METRIC>=number"),
        ({"BASELINE": "nowhere"}, "BASELINE=nowhere is no variant, run or matrix"),
        ({"BASELINE": "OPTIMIZER=adagrad"}, "BASELINE=OPTIMIZER=adagrad is no variant, run or matrix"),
        ({"FAIL_ON_REGRESSION": "maybe"}, "FAIL_ON_REGRESSION=maybe is neither y nor n"),
        ({"TOLERANCE": "-1"}, "TOLERANCE=-1 is no difference that one could allow"),
    ],
)
def test_what_cannot_be_judged_by_is_refused(matrix: Any, given: dict[str, str], message: str) -> None:
    with pytest.raises(ReportError) as caught:
        check_judging(matrix.directory, given)
    assert str(caught.value).startswith(message)
    assert caught.value.hint


def test_json_has_every_number_of_a_verdict(matrix_of: Any) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    content: Any = json.loads(json.dumps(as_json(collect(matrix.made.directory)), allow_nan=False))
    comparison = content["comparisons"][0]
    budget = {"steps": [100], "samples": [916], "tokens": [], "training_seconds": None}
    assert comparison.pop("low") == pytest.approx(0.03 - 4.302652729911275 * 0.01 / math.sqrt(3))
    assert comparison.pop("high") == pytest.approx(0.03 + 4.302652729911275 * 0.01 / math.sqrt(3))
    assert comparison == {
        "variant": "adam",
        "baseline": "sgd",
        "metric": "test_accuracy",
        "verdict": "better",
        "reason": None,
        "method": "paired",
        "seeds": ["1", "2", "3"],
        "left_out": [],
        "num_values": [3, 3],
        "difference": pytest.approx(0.03),
        "level": pytest.approx(0.95),
        "effect_size": pytest.approx(3 / math.sqrt(math.pi)),
        "p": pytest.approx(1 - math.sqrt(27 / 29)),
        "p_holm": pytest.approx(1 - math.sqrt(27 / 29)),
        "more_seeds": None,
        "budgets": [budget, budget],
        "failures": [],
    }
    assert (content["confidence"], content["decisive_metric"], content["baseline"]) == (
        0.95,
        "test_accuracy",
        "sgd",
    )


def test_energy_and_cost_are_read_where_they_were_measured(tmp_path: Path, make: SimpleNamespace) -> None:
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
    assert "Not measured: time, CPU memory." in page


def variant(label: str, accuracies: Mapping[str, float]) -> Variant:
    cells = [
        Cell(
            f"{label}-{seed}",
            {"SEED": seed},
            RunData(Path(label), "complete", "", 1, {}, {"steps_done": 9, "test_accuracy": value}, {}, 0),
        )
        for seed, value in accuracies.items()
    ]
    return Variant({}, label, cells)


accuracies_by_seed = st.dictionaries(
    st.sampled_from("123456"), st.integers(0, 100).map(lambda percent: percent / 100)
)


@given(accuracies_by_seed, st.lists(accuracies_by_seed, max_size=4), st.sampled_from([0.8, 0.95, 0.99]))
def test_verdict_interval_and_p_never_contradict_each_other(
    baseline: Mapping[str, float], others: Sequence[Mapping[str, float]], confidence: float
) -> None:
    base = variant("base", baseline)
    pairs = [(variant(f"v{i}", runs), base) for i, runs in enumerate(others)]
    for found in judge(pairs, metric_named("test_accuracy"), ReportSettings(confidence=confidence)):
        decided = found.verdict in (Verdict.BETTER, Verdict.WORSE)
        assert decided == (found.interval is not None and found.interval.excludes_zero)
        assert (found.p is None) == (found.interval is None) == (found.p_holm is None)
        assert bool(found.reason) != decided
        if decided:
            assert found.difference is not None
            assert found.p_holm is not None
            assert (found.difference > 0) == (found.verdict is Verdict.BETTER)
            assert found.p_holm <= 1 - confidence + 1e-9
        common = [seed for seed in baseline if seed in others[int(found.variant[1:])]]
        assert sorted(found.seeds) == sorted(common)


def test_the_same_runs_give_the_same_conclusions(matrix: Any) -> None:
    first, second = collect(matrix.directory), collect(matrix.directory)
    assert first.conclusions == second.conclusions
    assert isinstance(first, Summary)
