"""Which way a metric is better is never guessed: its row or people say it, or nothing is judged by it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kharness.config.make import typed
from kharness.matrix.sweep.validation import Objective, read_objective
from kharness.report.errors import ReportError
from kharness.report.graphs import draw_all
from kharness.report.judging.profiles import parse_target
from kharness.report.judging.sentences import comparison_lines
from kharness.report.metrics import metric_named
from kharness.report.regression import regressions
from kharness.report.summary import Summary, collect
from kharness.report.writing.caveats import caveat_lines
from kharness.report.writing.files import as_csv, as_markdown
from kharness.report.writing.html import as_html
from kharness.runs.errors import MatrixError
from monitoring.journal.fields.directions import read_directions

from ....warm_python import WarmPython
from ..conftest import Make, written_json

UNKNOWN = (
    "wer",
    "cer",
    "fid",
    "mae",
    "rmse",
    "bpb",
    "error_rate",
    "reward",
    "val/ppl",
    "val_wer",
    "test/wer",
)

MatrixOf = Callable[..., Path]


def journal(metric: str, value: float, **config: object) -> list[dict[str, Any]]:
    """Journal of a training outside the tree: two validations and an end, all with its own metric."""
    start = {"event": "start", "num_steps": 20, "batch_size": 4, "seed": 1, "config": config}
    steps = [{"event": "step", "global_step": step, "sec_per_step": 0.5} for step in (10, 20)]
    evals = [
        {"event": "eval", "global_step": step, "split": "val", metric: value + (20 - step) / 100}
        for step in (10, 20)
    ]
    end = {"event": "end", "status": "complete", "steps_done": 20, "training_seconds": 10.0, metric: value}
    return [start, *steps, *evals, end]


@pytest.fixture
def matrix_of(tmp_path: Path, make: Make) -> MatrixOf:
    """Two variants of four seeds: the second has much less of the metric."""

    def build(metric: str, **config: object) -> Path:
        seeds = ["1", "2", "3", "4"]
        made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"], "SEED": seeds})
        for optimizer, mean, power in (("sgd", 0.31, 1), ("adam", 0.10, 2)):
            for seed in seeds:
                values = {"OPTIMIZER": optimizer, "SEED": seed}
                made.add(values, journal(metric, mean + int(seed) ** power / 1000, **config))
        return made.directory

    return build


def judged(directory: Path, metric: str, better: str = "") -> Summary:
    given = {"CONFIG_REPORT_METRIC": metric}
    return collect(directory, {**given, "CONFIG_REPORT_BETTER": better} if better else given)


@pytest.mark.parametrize("metric", UNKNOWN)
def test_nothing_is_judged_by_a_metric_of_which_nobody_said_which_way_is_better(
    matrix_of: MatrixOf, metric: str
) -> None:
    summary = judged(matrix_of(metric), metric)
    (comparison,) = summary.conclusions.comparisons
    assert (comparison.verdict.value, comparison.reason) == (
        "undecided",
        "which way is better is unknown",
    )
    assert comparison.difference == pytest.approx(-0.205)
    assert (summary.conclusions.times, summary.conclusions.fronts) == ([], [])
    line = (
        f"which way {metric} is better is unknown: write better.{metric} = down (or up), as "
        f"CONFIG_REPORT_BETTER='better.{metric} = down'"
    )
    assert comparison_lines(summary.conclusions)[-1] == line
    with pytest.raises(ReportError, match="cannot decide") as refused:
        regressions(summary.conclusions.comparisons, 0.5)
    assert f"better.{metric} = down" in str(refused.value)
    draw_all(summary, ["differences", "pareto_front", "time_to_target"])


@pytest.mark.parametrize("metric", UNKNOWN)
@pytest.mark.parametrize(("better", "verdict"), [("down", "better"), ("up", "worse")])
def test_a_said_direction_counts_everywhere(
    matrix_of: MatrixOf, metric: str, better: str, verdict: str
) -> None:
    summary = judged(matrix_of(metric), metric, f"better.{metric} = {better}")
    conclusions = summary.conclusions
    (comparison,) = conclusions.comparisons
    assert (comparison.verdict.value, conclusions.metric_note) == (verdict, "")
    assert len(regressions(conclusions.comparisons)) == (verdict == "worse")
    of_validation = "val/wer" if metric == "test/wer" else metric
    targets = [(times.target.metric, times.target.at_least) for times in conclusions.times]
    assert targets == ([] if metric == "test/wer" else [(of_validation, better == "up")])
    assert {front.quality for front in conclusions.fronts} == {metric}


def test_report_names_what_decides_nothing_and_the_line_that_changes_that(
    matrix_of: MatrixOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {"val/acc": 0.5, "f1": 0.5, "bleu": 0.5, "val_accuracy": 0.5, "grad_norm": 0.5, "layers": 3}
    for run in (directory := matrix_of("val_loss")).glob("*/metrics.jsonl"):
        record = {
            "event": "eval",
            "global_step": 20,
            "split": "val",
            "time": 1,
            "seq": 9,
            "attempt": 1,
            **others,
        }
        run.write_text(run.read_text() + json.dumps(record) + "\n")
    told = "val/acc, f1, bleu decide nothing, for which way is better is unknown: "
    assert caveat_lines(collect(directory))[1:] == [
        told + "write better.val/acc = down (or up), as CONFIG_REPORT_BETTER='better.val/acc = down', beside "
        "CONFIG_REPORT_METRIC=val/acc"
    ]
    monkeypatch.setattr(typed, "_front", "kharness")
    assert caveat_lines(collect(directory))[1:] == [
        f"{told}kharness report --metric val/acc --better val/acc=up (or down) judges by val/acc; "
        'in kharness.toml metric = "val/acc" and, below [better], "val/acc" = "up"'
    ]
    said = collect(directory, {"CONFIG_REPORT_BETTER": "val/acc = up; f1 = up; bleu = neither"})
    assert caveat_lines(said)[1:] == []


def test_a_run_may_say_the_direction_of_its_own_metrics(matrix_of: MatrixOf) -> None:
    directory = matrix_of("wer", REPORT_METRIC="wer", REPORT_BETTER="wer = down")
    assert [one.verdict.value for one in collect(directory).conclusions.comparisons] == ["better"]
    turned = judged(directory, "wer", "wer=up").conclusions.comparisons
    assert [one.verdict.value for one in turned] == ["worse"]


def test_a_regression_of_an_error_rate_is_one(
    root: Path, warm_python: WarmPython, matrix_of: MatrixOf
) -> None:
    asked = [f"RUN={matrix_of('wer')}", "CONFIG_REPORT_METRIC=wer", "FAIL_ON_REGRESSION=y"]
    codes = []
    for more in ([], ["CONFIG_REPORT_BETTER=better.wer = down"], ["CONFIG_REPORT_BETTER=better.wer = up"]):
        done = warm_python.run([root / "scripts" / "summary.py", *asked, *more], cwd=root)
        codes.append(done.returncode)
    assert codes == [2, 0, 3]


def test_a_slash_in_a_name_is_part_of_it(matrix_of: MatrixOf) -> None:
    directory = matrix_of("val/ppl")
    summary = judged(directory, "val/ppl", "better.val/ppl = down")
    (row, _) = list(csv.DictReader(io.StringIO(as_csv(summary))))
    assert float(row["val/ppl_mean"]) == pytest.approx(0.3125)
    found = written_json(summary)
    assert found["variants"][0]["metrics"]["val/ppl"]["n"] == 4
    assert (found["decisive_metric"], found["time_to_target"][0]["target"]) == (
        "val/ppl",
        "val/ppl<=0.313",
    )
    assert "0.3125" in as_markdown(summary)
    draw_all(summary)
    assert "val/ppl" in as_html(summary)
    assert (directory / "graphs" / "time_to_target.csv").read_text().count("yes") == 7


def test_targets_of_names_with_a_slash() -> None:
    target = parse_target("val/ppl<=20", {"val/ppl": "down"})
    assert (target.metric, target.at_least, target.value) == ("val/ppl", False, 20)
    assert str(parse_target("val/accuracy>=0.9")) == "val/accuracy>=0.9"
    with pytest.raises(ReportError, match="getting worse") as refused:
        parse_target("val/ppl>=20", {"val/ppl": "down"})
    assert refused.value.hint == "write val/ppl<=20"
    with pytest.raises(ReportError, match="which way val_wer is better is unknown") as refused:
        parse_target("val_wer>=0.2")
    assert str(refused.value.hint).startswith("write better.val_wer = down (or up)")
    with pytest.raises(ReportError, match="reached on the validation set"):
        parse_target("test/wer<=0.2", {"test/wer": "down"})


@pytest.mark.parametrize("metric", ["val_wer", "val/ppl", "reward", "val_loss_inverse"])
def test_a_search_has_no_objective_without_a_direction(metric: str) -> None:
    with pytest.raises(MatrixError, match="which way it is better is unknown") as refused:
        read_objective({"SWEEP_METRIC": metric})
    assert f"better.{metric} = down" in str(refused.value.hint)
    for better in ("up", "down"):
        settings = {"SWEEP_METRIC": metric, "REPORT_BETTER": f"better.{metric} = {better}"}
        assert read_objective(settings) == Objective(metric, minimize=better == "down")


def test_rows_say_it_of_what_they_know() -> None:
    names = ("val_loss", "val/loss", "val_perplexity", "val_accuracy", "val/accuracy", "energy_joules", "lr")
    found = [metric_named(name).higher_is_better for name in names]
    assert found == [False, False, False, True, True, False, None]


def test_lines_are_read_and_others_refused(tmp_path: Path, make: Make) -> None:
    found = read_directions("better.wer = down; val/bleu=up\nbetter.x.y-z = neither;; a b =up")
    assert found == {"wer": "down", "val/bleu": "up", "x.y-z": "neither", "a b": "up"}
    make.journal(tmp_path / "run", journal("wer", 0.3))
    for text in ("wer", "wer = lower", "better. = down", "wer down"):
        with pytest.raises(ReportError, match="does not say which way a metric is better"):
            collect(tmp_path / "run", {"CONFIG_REPORT_BETTER": text})
        with pytest.raises(MatrixError, match="does not say which way a metric is better"):
            read_objective({"REPORT_BETTER": text})
