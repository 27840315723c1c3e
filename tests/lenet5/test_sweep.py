"""A sweep of real trainings: each value reaches its training, and losing ones can be stopped early."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ..few_digits import environment_of
from ..warm_python import WarmPython


def run(warm_few: WarmPython, checkout: Path, script: str, output: Path, *arguments: str) -> str:
    fixed = ["TRACKER=none", "CONFIG_DATASET_FEW_DIGITS=y", "CONFIG_REPORT_GRAPHS=n"]
    command = [f"scripts/{script}.py", f"O={output}", *fixed, *arguments]
    done = warm_few.run(command, cwd=checkout, env=environment_of(checkout))
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def records(run: Path, event: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == event]


def test_each_value_reaches_its_training(warm_few: WarmPython, few_digits: Path, tmp_path: Path) -> None:
    ranges = tmp_path / "my.ranges"
    ranges.write_text(
        'CONFIG_LEARNING_RATE="0.002:0.024:0.05"\n'
        'CONFIG_SCHEDULE="constant"\nCONFIG_MAX_STEPS=25\nCONFIG_BATCH_SIZE=4\n'
        "CONFIG_LOG_EVERY=1\nCONFIG_CHECKPOINT_EVERY=0\n"
    )
    run(warm_few, few_digits, "sweep", tmp_path, f"RANGE_CONFIG={ranges}")
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


def test_a_cell_that_clearly_loses_is_stopped_early(
    warm_few: WarmPython, few_digits: Path, tmp_path: Path
) -> None:
    """The loser would train for hours, so that it is stopped early on any machine."""
    output = run(
        warm_few,
        few_digits,
        "test_matrix",
        tmp_path,
        "CONFIG_MATRIX_AXES=LEARNING_RATE=0.05 NUM_EPOCHS=12",
        "CONFIG_MATRIX_INCLUDE=LEARNING_RATE=1e-7 NUM_EPOCHS=100000",
        "CONFIG_MATRIX_ORDER_LISTED=y",
        "CONFIG_MATRIX_JOBS=1",  # side by side the loser may come to each rung first
        "CONFIG_MATRIX_EARLY_STOPPING=y",
        "CONFIG_MATRIX_HALVING_FACTOR=2",
        "CONFIG_BATCH_SIZE=18",
    )
    directory = (tmp_path / "results" / "latest").resolve()
    winner, loser = "learning-rate-0.05_num-epochs-12", "learning-rate-1e-7_num-epochs-100000"
    status = {name: json.loads((directory / name / "status.json").read_text()) for name in (winner, loser)}
    assert status[winner]["status"] == "complete"
    (attempt,) = status[loser]["attempts"]
    assert (status[loser]["status"], attempt["cause"]) == ("interrupted", "stopped_early")
    reason = r"rung \d \(validation \d+\): val_loss 2\.\d+ is not among the best 1/2 of the 2 cells"
    assert re.search(reason, attempt["reason"])
    assert re.search(rf"{loser}: stopped early: {reason}", output)
    assert len(records(directory / winner, "epoch")) == 12
    assert 1 <= len(records(directory / loser, "epoch")) < 100000
