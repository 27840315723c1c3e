"""Matrices whose runs differ in little but their results, as verdicts are tried on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kharness.report.judging.judgment import Comparison
from kharness.report.summary import collect

from ..conftest import Make


def end(test_accuracy: float | None, *, steps: int = 100, **fields: object) -> list[dict[str, Any]]:
    """A journal of a start and an end, whose numbers are all that a verdict needs."""
    start = {"event": "start", "num_steps": steps, "batch_size": 10, "steps_per_epoch": 7, "seed": 1}
    result = {"event": "end", "status": "complete", "steps_done": steps, "test_accuracy": test_accuracy}
    return [{**start, "dataset": {"name": "digits", "train": 64}}, {**result, **fields}]


class Matrix:
    """Optimizers as variants; each seed has one accuracy."""

    def __init__(self, tmp_path: Path, make: Make, variants: Mapping[str, Mapping[str, Any]]) -> None:
        seeds = sorted({seed for runs in variants.values() for seed in runs})
        self.made = make.matrix(tmp_path / "matrix", {"OPTIMIZER": list(variants), "SEED": seeds})
        for name, runs in variants.items():
            for seed, records in runs.items():
                journal = records if isinstance(records, list) else end(records)
                self.made.add({"OPTIMIZER": name, "SEED": seed}, journal)

    def judged(self, **given: str) -> Sequence[Comparison]:
        return collect(self.made.directory, given).conclusions.comparisons


MatrixOf = Callable[..., Matrix]


@pytest.fixture
def matrix_of(tmp_path: Path, make: Make) -> MatrixOf:
    return lambda **variants: Matrix(tmp_path, make, variants)


def seeds(*accuracies: float) -> dict[str, float]:
    return {str(seed): accuracy for seed, accuracy in enumerate(accuracies, 1)}
