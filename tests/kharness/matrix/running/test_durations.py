"""How long a training will take, from the recorded matrix (two SGD runs of 44 steps, one of AdamW)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kharness.config.tree import Tree
from kharness.matrix.running.durations import read_history

RECORDED = "tests/data/recorded_matrix"
AFFECTS = Tree.load(Path(__file__).resolve().parents[4]).affects
# Seconds of the training loop, and seconds from launch to exit less those.
SGD = [(2.046359587000552, 7.671708135), (2.1999386040006357, 8.802650219)]
ADAMW = (1.8718205539998962, 8.376336003)


def expected_seconds(results: Path, values: Mapping[str, object]) -> float | None:
    estimate = read_history(results, AFFECTS).expected(values)
    return estimate.seconds if estimate else None


@pytest.fixture
def results(tmp_path: Path, root: Path) -> Path:
    shutil.copytree(root / RECORDED, tmp_path / "test_matrix_1")
    return tmp_path


def values(root: Path, cell: str, **different: Any) -> dict[str, Any]:
    start = json.loads((root / RECORDED / cell / "metrics.jsonl").read_text().partition("\n")[0])
    return {**start["config"], **different}


def test_a_training_takes_as_long_as_the_runs_most_like_it(results: Path, root: Path) -> None:
    history = read_history(results, AFFECTS)
    estimate = history.expected(values(root, "optimizer-sgd_seed-1", SEED=9, MATRIX_JOBS=3))
    assert estimate is not None
    assert estimate.seconds == pytest.approx(sum(map(sum, SGD)) / 2)
    assert (estimate.runs, estimate.different) == (2, [])
    # The run of seed 2 was killed, so it tells nothing.
    estimate = history.expected(values(root, "optimizer-adamw_seed-2"))
    assert estimate is not None
    assert estimate.seconds == pytest.approx(sum(ADAMW))
    assert estimate.runs == 1


@pytest.mark.parametrize(
    ("different", "steps"),
    [
        ({"NUM_EPOCHS": 4}, 88),
        ({"MAX_STEPS": 10}, 10),
        ({"MAX_STEPS": 1000}, 44),
        ({"BATCH_SIZE": 128}, 86),
    ],
)
def test_the_planned_steps_count(results: Path, root: Path, different: dict[str, int], steps: int) -> None:
    estimate = read_history(results, AFFECTS).expected(values(root, "optimizer-adamw_seed-1", **different))
    loop, around = ADAMW
    assert estimate is not None
    assert estimate.seconds == pytest.approx(around + loop / 44 * steps)
    assert estimate.different == [name for name in different if name == "BATCH_SIZE"]


def test_another_model_tells_nothing(results: Path, root: Path) -> None:
    assert read_history(results, AFFECTS).expected(values(root, "optimizer-sgd_seed-1", MODEL="gpt2")) is None


def test_epochs_of_another_dataset_tell_nothing(results: Path, root: Path) -> None:
    asked = values(root, "optimizer-sgd_seed-1", DATASET="mnist", NUM_EPOCHS=7)
    assert read_history(results, AFFECTS).expected(asked) is None


def test_a_single_run_counts_without_a_status(results: Path, root: Path) -> None:
    run = results / "single"
    run.mkdir()
    journal = root / RECORDED / "optimizer-adamw_seed-1" / "metrics.jsonl"
    (run / "metrics.jsonl").write_text(journal.read_text().replace('"lenet5"', '"other"'))
    assert expected_seconds(results, values(root, "optimizer-adamw_seed-1", MODEL="other")) == (
        pytest.approx(ADAMW[0])
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[]\n", '{"event":"start"}\n', '{"config":1}\n{"status":"complete"}\n']
)
def test_what_is_broken_is_passed_over(tmp_path: Path, root: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text(text)
    (tmp_path / "latest").symlink_to("run")
    assert expected_seconds(tmp_path, values(root, "optimizer-sgd_seed-1")) is None


def test_a_folder_that_is_not_there_tells_nothing(tmp_path: Path, root: Path) -> None:
    assert expected_seconds(tmp_path / "results", values(root, "optimizer-sgd_seed-1")) is None
