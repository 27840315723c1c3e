"""The samples of a past step: those of the record, with their own losses; nothing of the run changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from kharness.training.samples_of_steps import COLUMNS, grid
from monitoring import read_records

from ...few_digits import environment_of
from ...monitoring.conftest import wait_for_delivery
from ...warm_python import WarmPython

FLAGS = (
    *("--dataset", "few-digits", "--device", "cpu", "--tracker", "none", "--batch-size", "18"),
    *("--num-epochs", "2", "--optimizer", "sgd", "--learning-rate", "0.01", "--schedule", "constant"),
    *("--checkpoint-every-steps", "2", "--checkpoint-keep", "9", "--lenet5-shift", "0"),
)

Train = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def train(few_digits: Path, warm_few: WarmPython) -> Train:
    """LeNet-5 on a hundred digits."""

    def run(*flags: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **environment_of(few_digits)}
        return warm_few.run([few_digits / "lenet5/train.py", *flags], cwd=few_digits, env=environment)

    return run


def test_samples_are_those_of_the_step_and_their_mean_loss_is_its_loss(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train("--run-dir", run, *FLAGS).returncode == 0
    wait_for_delivery(run)  # its agent ends after it
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    done = train("--run-dir", run, "--inspect-step", "3")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    [title] = [line for line in lines if line.startswith("step 3 of")]
    assert "losses by weights: those after step 2, of attempt01-step00000002-" in title
    rows = [line.split() for line in lines if line.split()[:1] and line.split()[0].isdecimal()]
    assert [row[0] for row in rows] == [str(place) for place in range(1, 19)]
    losses = torch.tensor([float(row[3]) for row in rows])
    records = [record for record, _ in read_records(run / "metrics.jsonl") if record["event"] == "step"]
    [loss] = [record["train_loss"] for record in records if record["global_step"] == 3]
    assert losses.mean().item() == pytest.approx(loss, abs=1e-4)
    with Image.open(run / "inspected" / "step00000003.png") as picture:
        assert picture.size == (COLUMNS * 30, 3 * 30)
    assert {path: path.stat().st_mtime_ns for path in run.iterdir() if path.name != "inspected"} == before
    refused = train("--run-dir", run, "--inspect-step", "1000")
    assert (refused.returncode, refused.stderr.splitlines()[0][:29]) == (2, "error: INSPECT_STEP=1000 is o")


def test_pictures_that_are_shifted_at_random_are_shown_too(train: Train, tmp_path: Path) -> None:
    """Presets shift pictures at random; each shift is drawn anew."""
    run = tmp_path / "run"
    assert train("--run-dir", run, *FLAGS[:-2], "--lenet5-shift", "2").returncode == 0
    done = train("--run-dir", run, "--inspect-step", "3")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [
        line.split() for line in done.stdout.splitlines() if line.split()[:1] and line.split()[0].isdecimal()
    ]
    assert [row[0] for row in rows] == [str(place) for place in range(1, 19)]
    assert all(0 < float(row[3]) < 10 for row in rows)


def test_a_grid_of_pictures_has_their_pixels_in_rows() -> None:
    pictures = [torch.tensor([[[0.0, 1.0], [0.5, 0.25]]]) + shift for shift in range(9)]
    sheet = grid(pictures)
    assert (sheet.mode, sheet.size) == ("RGB", (8 * 4, 2 * 4))
    pixels = [sheet.getpixel((x, y)) for y in range(4) for x in range(4)]
    edge = 128
    gray = [*[edge] * 5, 0, 255, edge, edge, 128, 64, *[edge] * 5]
    assert pixels == [(value, value, value) for value in gray]
