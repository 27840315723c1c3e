"""A matrix of language models: judged by validation loss, at equal tokens, with what they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kharness.report.graphs import draw_all, time_to_target
from kharness.report.judging.sentences import comparison_lines
from kharness.report.summary import Summary, collect
from kharness.report.writing.files import as_markdown
from kharness.report.writing.html import as_html

from .conftest import MatrixDirectory, training, written_json


def trained(losses: list[float], text: str) -> list[dict[str, Any]]:
    """Ten steps between validations, the first of them before any step."""
    config = {"MODEL": "gpt2", "REPORT_METRIC": "val_loss", "SEED": 1}
    records: list[dict[str, Any]] = [
        {"event": "start", "num_steps": 30, "batch_size": 4, "tokens_per_sample": 64, "config": config}
    ]
    for number, loss in enumerate([5.5, *losses]):
        if number:
            step = {"event": "step", "global_step": 10 * number, "train_loss": loss, "sec_per_step": 0.5}
            records.append(step)
        found = {"val_loss": loss, "val_perplexity": 2.7**loss}
        records.append({"event": "eval", "global_step": 10 * number, "split": "val", **found})
    counts = {"steps_done": 30, "tokens_seen": 30 * 4 * 64, "training_seconds": 15.0, "samples": [text]}
    return [*records, {"event": "end", "status": "complete", **counts}]


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    seeds = ["1", "2", "3", "4"]
    matrix = MatrixDirectory(tmp_path / "m", {"OPTIMIZER": ["adam", "sgd"], "SEED": seeds})
    for seed in seeds:
        noise = int(seed) / 1000
        for optimizer, ahead in (("adam", 0.0), ("sgd", 0.5)):
            losses = [loss + ahead * (1 + noise) + noise for loss in (3.0, 2.0, 1.5)]
            text = f"<by {optimizer} {seed}>"
            matrix.add({"OPTIMIZER": optimizer, "SEED": seed}, trained(losses, text))
    return collect(matrix.directory, {"CONFIG_REPORT_METRIC": "val_loss"})


def test_lower_validation_loss_at_equal_tokens_is_better(summary: Summary) -> None:
    found = summary.conclusions
    assert (found.metric.name, found.metric.higher_is_better, found.metric_note) == ("val_loss", False, "")
    (comparison,) = found.comparisons
    assert (comparison.variant, comparison.verdict.value) == ("sgd", "worse")
    assert (comparison.budget_unit, comparison.budgets[0].tokens) == ("tokens", (7680,))


def test_time_to_target_is_that_of_the_loss(summary: Summary) -> None:
    (workload,) = summary.conclusions.times
    assert (workload.target.metric, workload.target.at_least) == ("val_loss", False)
    assert {times.variant: times.median_step for times in workload.variants} == {"adam": 20, "sgd": 30}
    assert {one.variant: one.score > 0.9 for one in summary.conclusions.profiles} == {
        "adam": True,
        "sgd": False,
    }


def test_without_times_the_way_to_the_target_is_drawn_in_steps(summary: Summary) -> None:
    timed = time_to_target.draw(summary)
    for journal in summary.directory.glob("*/metrics.jsonl"):
        journal.write_text(journal.read_text().replace("sec_per_step", "not_recorded"))
    (untimed,) = time_to_target.draw(collect(summary.directory)).axes
    assert [axes.get_xlabel() for axes in timed.axes] == ["Time to target (s)"]
    assert untimed.get_xlabel() == "Steps to target"
    assert [text.get_text() for text in untimed.texts] == ["20", "30, 1 of 4 never"]


def test_what_the_models_wrote_is_on_the_page(summary: Summary) -> None:
    page = as_html(summary)
    assert page.count("&lt;by adam") == page.count("&lt;by sgd") == 4


def test_the_graph_of_validation_loss_has_every_run_and_the_means(summary: Summary) -> None:
    assert [path.stem for path in draw_all(summary, ["validation_loss"])] == ["validation_loss"]
    header, *rows = (summary.directory / "graphs" / "validation_loss.csv").read_text().splitlines()
    assert header == "variant,run,num_runs,global_step,val_loss"
    mean = [tuple(map(float, row.split(",")[2:])) for row in rows if row.startswith("sgd,,")]
    assert mean == [
        pytest.approx((4, *point)) for point in ((0, 5.5), (10, 3.50375), (20, 2.50375), (30, 2.00375))
    ]
    assert sum(row.startswith("adam,optimizer-adam_seed-2,1,") for row in rows) == 4


@pytest.fixture
def two_models(tmp_path: Path) -> MatrixDirectory:
    """Language and image models under two optimizers, three seeds."""
    seeds = ["1", "2", "3"]
    axes = {"MODEL": ["lenet5", "gpt2"], "OPTIMIZER": ["sgd", "adam"], "SEED": seeds}
    matrix = MatrixDirectory(tmp_path / "m", axes)
    for seed in seeds:
        for optimizer, ahead in (("sgd", 0.0), ("adam", 0.2)):
            better = ahead + int(seed) / 1000 * (1 + ahead)
            start, *images = training([1.0, 0.5], [0.5, 0.6 + better], 0.6 + better)
            config = {"MODEL": "lenet5", "REPORT_METRIC": "test_accuracy", "SEED": int(seed)}
            values = {"OPTIMIZER": optimizer, "SEED": seed}
            matrix.add({"MODEL": "lenet5", **values}, [{**start, "config": config}, *images])
            matrix.add({"MODEL": "gpt2", **values}, trained([3.0, 2.0, 1.5 + better], "text"))
    return matrix


def test_each_model_of_a_matrix_is_judged_by_its_own_metric(two_models: MatrixDirectory) -> None:
    summary = collect(two_models.directory)
    assert [(one.variant, one.metric.name, str(one.verdict)) for one in summary.conclusions.comparisons] == [
        ("lenet5, adam", "test_accuracy", "better"),
        ("gpt2, adam", "val_loss", "worse"),
    ]
    fronts = {(front.workload, front.quality) for front in summary.conclusions.fronts}
    assert fronts == {("lenet5", "test_accuracy"), ("gpt2", "val_loss")}
    words = "\n".join(comparison_lines(summary.conclusions))
    assert [part in words for part in ("test accuracy compared with", "val loss compared with")] == [True] * 2
    page, text = as_html(summary), as_markdown(summary)
    assert [page.count(f"<h3>{title} compared with") for title in ("test accuracy", "val loss")] == [1, 1]
    assert "in test accuracy or val loss, run by run" in text
    assert written_json(summary)["decisive_metrics"] == {"lenet5": "test_accuracy", "gpt2": "val_loss"}
    assert [path.stem for path in draw_all(summary, ["differences"])] == ["differences"]


def test_a_metric_of_the_command_line_is_that_of_every_model(two_models: MatrixDirectory) -> None:
    found = collect(two_models.directory, {"CONFIG_REPORT_METRIC": "val_loss"}).conclusions
    assert {one.metric.name for one in found.comparisons} == {"val_loss"}
    assert [part is found for part in found.by_metric] == [True]
