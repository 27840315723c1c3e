"""Run directories as a trainer and a runner leave them, with a few numbers that one can check by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.matrix_json import Plan, planned_content
from kharness.report.summary import Summary
from kharness.report.writing.files import as_json, json_parts


def written_json(summary: Summary) -> Any:
    """Return summary.json of it as a program reads it."""
    return json.loads("".join(json_parts(as_json(summary))))


class MatrixDirectory:
    """A matrix directory that grows cell by cell."""

    def __init__(
        self, directory: Path, axes: Mapping[str, Sequence[str]], included: Sequence[str] = ()
    ) -> None:
        """Axes named in `included` come from MATRIX_INCLUDE alone."""
        self.directory = directory
        self.axes = axes
        self.included = included
        self.cells: list[dict[str, Any]] = []
        directory.mkdir(parents=True)
        self._write_plan()

    def plan(self, values: Mapping[str, str]) -> Path:
        """Add a cell to the plan; its directory is not made."""
        name = "_".join(f"{symbol.lower()}-{value}" for symbol, value in values.items())
        cell = {"name": name, "values": dict(values), "model": "lenet5", "command": "python lenet5/train.py"}
        self.cells.append(cell)
        self._write_plan()
        return self.directory / name

    def add(
        self,
        values: Mapping[str, str],
        records: Sequence[Mapping[str, Any]],
        *,
        status: str = "complete",
        reason: str | None = None,
    ) -> Path:
        """Add a cell with its journal and its status."""
        run = self.plan(values)
        write_journal(run, records)
        write_status(run, status, reason)
        return run

    def _write_plan(self) -> None:
        axes = [Axis(name, values, included=name in self.included) for name, values in self.axes.items()]
        plan = {
            **planned_content(Plan(self.directory, axes, cells=(), launches=(), created=1795262002.0)),
            "model": "lenet5",
            "cells": self.cells,
            "git": {"revision": "0123abcd", "dirty": True, "diff_sha256": "fedcba9876543210"},
            "versions": {"python": "3.11.9", "torch": "2.13.0"},
        }
        (self.directory / "matrix.json").write_text(json.dumps(plan))


def write_journal(run: Path, records: Sequence[Mapping[str, Any]]) -> None:
    run.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"time": 1000.0 + i, "seq": i + 1, "attempt": 1, **record})
        for i, record in enumerate(records)
    ]
    (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write_status(run: Path, status: str, reason: str | None) -> None:
    attempt = {"started": 1000.0, "ended": 1010.0, "exit_code": 0, "signal": None, "reason": reason, "pid": 7}
    (run / "status.json").write_text(json.dumps({"status": status, "attempts": [attempt]}))


def training(
    losses: Sequence[float | None], accuracies: Sequence[float], test_accuracy: float | None = None
) -> list[dict[str, Any]]:
    """A journal: one step a loss at 10, 20, 30 … ms, validations spread over the steps, then the end."""
    num_steps = len(losses)
    records: list[dict[str, Any]] = [{"event": "start", "num_steps": num_steps, "config": {"SEED": 1}}]
    every = num_steps // max(1, len(accuracies))
    for step, loss in enumerate(losses, start=1):
        record = {"event": "step", "global_step": step, "train_loss": loss, "sec_per_step": step / 100}
        if loss is None:
            record.update(nonfinite=["train_loss"], nan_inf_detected=True)
        records.append(record)
        if step % every == 0 and step // every <= len(accuracies):
            accuracy = accuracies[step // every - 1]
            records.append(
                {
                    "event": "eval",
                    "global_step": step,
                    "split": "val",
                    "val_accuracy": accuracy,
                    "val_loss": 1 - accuracy,
                }
            )
    if test_accuracy is not None:
        records.append(
            {
                "event": "end",
                "status": "complete",
                "test_accuracy": test_accuracy,
                "test_loss": 1 - test_accuracy,
                "training_seconds": float(num_steps),
                "steps_done": num_steps,
            }
        )
    return records


class Make:
    """Builders of run directories."""

    matrix = MatrixDirectory
    journal = staticmethod(write_journal)
    status = staticmethod(write_status)
    training = staticmethod(training)


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def matrix(tmp_path: Path) -> MatrixDirectory:
    """Two optimizers, two seeds: three runs complete, one that failed after its second step."""
    made = MatrixDirectory(tmp_path / "test_matrix_x", {"OPTIMIZER": ["sgd", "adam"], "SEED": ["1", "2"]})
    made.add({"OPTIMIZER": "sgd", "SEED": "1"}, training([2.0, 1.0, 0.5, 0.25], [0.5, 0.75], 0.5))
    made.add({"OPTIMIZER": "sgd", "SEED": "2"}, training([2.5, 1.5, 0.5, 0.75], [0.25, 0.25], 1.0))
    made.add({"OPTIMIZER": "adam", "SEED": "1"}, training([4.0, 2.0, 1.0, 0.5], [0.5, 0.5], 0.75))
    made.add(
        {"OPTIMIZER": "adam", "SEED": "2"},
        training([3.0, None], [])[:3],
        status="failed",
        reason="exit code 1",
    )
    return made
