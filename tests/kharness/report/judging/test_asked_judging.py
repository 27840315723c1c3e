"""Verdicts are judged by a metric, and by settings of the plan, the command line and the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kharness.report.errors import ReportError
from kharness.report.judging.judgment import Verdict
from kharness.report.metrics import metric_named
from kharness.report.report import check_judging
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown

from ..conftest import Make
from .conftest import MatrixOf, seeds


def test_without_the_metric_the_last_validation_decides_and_it_is_said(tmp_path: Path, make: Make) -> None:
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


def test_a_metric_that_no_run_has_decides_nothing(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd=seeds(0.9, 0.8), adam=seeds(0.9, 0.7))
    (found,) = matrix.judged(CONFIG_REPORT_METRIC="val_perplexity")
    assert found.reason == "no complete run of adam has val perplexity"


def test_the_test_set_is_read_from_the_end_record_alone(tmp_path: Path, make: Make) -> None:
    """Whatever a training evaluated on the test set on its way, the last reading is the result."""
    records = make.training([1.0, 1.0], [0.5, 0.5], 0.6)
    records.insert(2, {"event": "eval", "global_step": 1, "split": "test", "test_accuracy": 0.99})
    make.journal(tmp_path / "run", records)
    summary = collect(tmp_path / "run")
    assert summary.cells[0].number(metric_named("test_accuracy")) == 0.6
    with pytest.raises(ReportError, match="the best of several looks at the test set is no test") as caught:
        check_judging(tmp_path / "run", {"CONFIG_REPORT_METRIC": "best_test_accuracy"})
    assert caught.value.hint.startswith("test_accuracy is read once")


def test_confidence_widens_the_interval(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    (found,) = matrix.judged(CONFIG_REPORT_CONFIDENCE="0.99")
    assert found.verdict is Verdict.NOT_SHOWN
    assert found.interval is not None
    assert found.interval.level == pytest.approx(0.991)


def test_settings_come_from_the_plan_and_the_command_line_wins(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(sgd=seeds(0.90, 0.80, 0.70), adam=seeds(0.92, 0.83, 0.74))
    path = matrix.made.directory / "matrix.json"
    plan = json.loads(path.read_text())
    plan["settings"] = {"REPORT_BASELINE": "adam", "REPORT_CONFIDENCE": 0.9, "MATRIX_JOBS": 2}
    path.write_text(json.dumps(plan))
    stored = collect(matrix.made.directory)
    assert (stored.settings.confidence, stored.conclusions.baseline) == (0.9, "adam")
    overridden = collect(matrix.made.directory, {"BASELINE": "sgd", "CONFIG_REPORT_CONFIDENCE": "0.99"})
    assert (overridden.settings.confidence, overridden.conclusions.baseline) == (0.99, "sgd")


def test_a_single_run_is_judged_by_its_own_configuration(tmp_path: Path, make: Make) -> None:
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
        ({"CONFIG_REPORT_METRC": "test_loss"}, "CONFIG_REPORT_METRC is not an option of the report"),
        ({"CONFIG_REPORT_TARGET": "0.9"}, "REPORT_TARGET=0.9 is not METRIC>=number"),
        ({"BASELINE": "nowhere"}, "BASELINE=nowhere is not a variant, run or matrix"),
        ({"BASELINE": "OPTIMIZER=adagrad"}, "BASELINE=OPTIMIZER=adagrad is not a variant, run or matrix"),
        ({"FAIL_ON_REGRESSION": "maybe"}, "FAIL_ON_REGRESSION=maybe is neither y nor n"),
        (
            {"CONFIG_REPORT_BUDGET_UNIT": "epochs"},
            "CONFIG_REPORT_BUDGET_UNIT=epochs is not a unit of budgets",
        ),
        ({"TOLERANCE": "-1"}, "TOLERANCE=-1 is not a difference that one could allow"),
    ],
)
def test_what_cannot_be_judged_by_is_refused(matrix: Any, given: dict[str, str], message: str) -> None:
    with pytest.raises(ReportError) as caught:
        check_judging(matrix.directory, given)
    assert str(caught.value).startswith(message)
    assert caught.value.hint
