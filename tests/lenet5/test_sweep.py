"""A sweep of real trainings: each value reaches its training, and losing ones can be stopped early."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ..warm_python import WarmPython


def run(warm_python: WarmPython, root: Path, script: str, output: Path, *arguments: str) -> str:
    command = [f"scripts/{script}.py", f"O={output}", "TRACKER=none", *arguments]
    done = warm_python.run(command, cwd=root, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def records(run: Path, event: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == event]


@pytest.mark.slow  # three trainings, one after the other
def test_each_value_reaches_its_training(warm_python: WarmPython, root: Path, tmp_path: Path) -> None:
    ranges = tmp_path / "my.ranges"
    ranges.write_text(
        'CONFIG_LEARNING_RATE="0.002:0.024:0.05"\n'
        'CONFIG_SCHEDULE="constant"\nCONFIG_MAX_STEPS=25\nCONFIG_LOG_EVERY=1\nCONFIG_CHECKPOINT_EVERY=0\n'
    )
    run(warm_python, root, "sweep", tmp_path, f"RANGE_CONFIG={ranges}")
    directory = (tmp_path / "results" / "latest").resolve()
    asked = {f"learning-rate-{text}": float(text) for text in ("0.002", "0.026", "0.05")}
    losses = {}
    for name, rate in asked.items():
        (start,) = records(directory / name, "start")
        steps = records(directory / name, "step")
        assert (
            f'CONFIG_LEARNING_RATE="{name.removeprefix("learning-rate-")}"\n'
            in (directory / name / ".config").read_text()
        )
        assert (start["config"]["LEARNING_RATE"], start["optimizer"]["learning_rate"]) == (rate, rate)
        assert [step["lr"] for step in steps] == [rate] * 25
        losses[name] = [step["train_loss"] for step in steps]
    # The same weights and images, then three different ways.
    assert len({loss[0] for loss in losses.values()}) == 1
    assert len({loss[-1] for loss in losses.values()}) == 3
    board = json.loads((directory / "leaderboard.json").read_text())
    validation = {name: records(directory / name, "eval")[0]["val_loss"] for name in asked}
    assert [(row["trials"], row["mean"]) for row in board["rows"]] == [
        ([name], validation[name]) for name in sorted(validation, key=validation.__getitem__)
    ]


@pytest.mark.slow  # two trainings of some epochs
def test_a_cell_that_clearly_loses_is_stopped_early(
    warm_python: WarmPython, root: Path, tmp_path: Path
) -> None:
    output = run(
        warm_python,
        root,
        "test_matrix",
        tmp_path,
        "CONFIG_MATRIX_AXES=LEARNING_RATE=0.05|1e-7",
        "CONFIG_MATRIX_ORDER_LISTED=y",
        "CONFIG_MATRIX_JOBS=1",  # side by side the loser may come to each rung first
        "CONFIG_MATRIX_EARLY_STOPPING=y",
        "CONFIG_MATRIX_HALVING_FACTOR=2",
        "CONFIG_BATCH_SIZE=256",
        "CONFIG_NUM_EPOCHS=12",
    )
    directory = (tmp_path / "results" / "latest").resolve()
    status = {
        name: json.loads((directory / name / "status.json").read_text())
        for name in ("learning-rate-0.05", "learning-rate-1e-7")
    }
    assert status["learning-rate-0.05"]["status"] == "complete"
    (attempt,) = status["learning-rate-1e-7"]["attempts"]
    assert (status["learning-rate-1e-7"]["status"], attempt["cause"]) == ("interrupted", "stopped_early")
    reason = r"rung \d \(validation \d+\): val_loss 2\.\d+ is not among the best 1/2 of the 2 cells"
    assert re.search(reason, attempt["reason"])
    assert re.search(rf"learning-rate-1e-7: stopped early: {reason}", output)
    assert len(records(directory / "learning-rate-0.05", "epoch")) == 12
    assert 1 <= len(records(directory / "learning-rate-1e-7", "epoch")) < 12
