"""A matrix of language models: judged by validation loss, at equal tokens, with what they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kharness.report.summary import Summary, collect
from kharness.report.writing.html import as_html

from .conftest import MatrixDirectory


def trained(losses: list[float], text: str) -> list[dict[str, Any]]:
    """Ten steps between validations, the first of them before any step."""
    records: list[dict[str, Any]] = [
        {"event": "start", "num_steps": 30, "batch_size": 4, "tokens_per_sample": 64, "config": {"SEED": 1}}
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


def test_what_the_models_wrote_is_on_the_page(summary: Summary) -> None:
    page = as_html(summary)
    assert page.count("&lt;by adam") == page.count("&lt;by sgd") == 4
