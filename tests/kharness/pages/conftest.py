"""Results with a matrix and a sweep, `make dashboard` as its user starts it, and a browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.matrix_json import Plan, planned_content
from kharness.report.report import write_files
from kharness.report.summary import collect

from ...ports import free_port
from ..report.conftest import MatrixDirectory, training, write_journal, write_status

ROOT = Path(__file__).resolve().parents[3]

# Learning rates of the trials, and the losses that they end with; the last one diverges.
TRIALS = {"0.001": 0.8, "0.003": 0.5, "0.01": 0.3, "0.03": 0.2, "0.1": 0.4, "3": 90.0}


def made_matrix(directory: Path) -> MatrixDirectory:
    """Three optimizers of three seeds with a recorded look (adam is better), and a fourth seed that came
    later, of which one run failed and one waits.
    """
    axes = {"OPTIMIZER": ["sgd", "adam", "muon"], "SEED": ["1", "2", "3", "4"]}
    made = MatrixDirectory(directory, axes)
    for name, accuracy in (("sgd", 0.5), ("adam", 0.7), ("muon", 0.501)):
        for seed in (1, 2, 3):
            number = accuracy + (seed if name == "sgd" else -seed) / 1000
            made.add({"OPTIMIZER": name, "SEED": str(seed)}, training([2.0, 1.0], [accuracy], number))
    write_files(collect(directory))
    made.add({"OPTIMIZER": "sgd", "SEED": "4"}, training([2.0, 1.0], [0.5], 0.5))
    made.add(
        {"OPTIMIZER": "adam", "SEED": "4"}, training([3.0], []), status="failed", reason="<b>exit code 1</b>"
    )
    made.plan({"OPTIMIZER": "muon", "SEED": "4"})
    return made


def made_sweep(directory: Path) -> Path:
    """A sweep over a learning rate and an optimizer."""
    directory.mkdir(parents=True)
    cells: list[dict[str, Any]] = []
    for number, (rate, loss) in enumerate(TRIALS.items(), 1):
        values = {"LEARNING_RATE": rate, "OPTIMIZER": "sgd" if number % 2 else "adam"}
        name = f"trial-{number:04}"
        cells.append({"name": name, "values": values, "model": "lenet5", "command": "python lenet5/train.py"})
        write_journal(directory / name, training([3.0, 2.0], [1 - loss], 0.5))
        write_status(directory / name, "complete", None)
    axes = [Axis("LEARNING_RATE", list(TRIALS)), Axis("OPTIMIZER", ["sgd", "adam"])]
    plan = Plan(
        directory, axes, (), (), kind="sweep", settings={"SWEEP_METRIC": "val_loss"}, created=1795262003.0
    )
    content = planned_content(plan)
    content |= {"cells": cells, "model": "lenet5"}
    content["ranges"] = {"LEARNING_RATE": "0.001..3 log", "OPTIMIZER": "sgd|adam"}
    (directory / "matrix.json").write_text(json.dumps(content))
    return directory


@dataclass(frozen=True)
class Dashboard:
    """A page that is served."""

    results: Path
    matrix: MatrixDirectory
    url: str


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """`make dashboard` of a matrix `grid` and a sweep `search`."""
    results = tmp_path_factory.mktemp("pages") / "results"
    matrix = made_matrix(results / "grid")
    made_sweep(results / "search")
    words = [sys.executable, "scripts/dashboard.py", f"RUN={results}", f"PORT={free_port()}"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("dashboard: http"), line
    yield Dashboard(results, matrix, line.split()[1])
    process.kill()
    process.communicate()
