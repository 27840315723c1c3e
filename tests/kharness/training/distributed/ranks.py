"""Trainings of several ranks: what tests of them start, and what they look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kharness.training.checkpoint import checkpoint_files, load
from monitoring import read_records

from ....warm_python import StartedPython

FLAGS = (
    *("--batch-size", "7", "--num-epochs", "3", "--device", "cpu", "--tracker", "none", "--log-every", "1"),
    *("--learning-rate", "0.05", "--checkpoint-every-steps", "3", "--schedule", "constant"),
)

StartRanks = Callable[..., list[StartedPython]]


def ends(ranks: list[StartedPython]) -> list[tuple[int, str]]:
    """Exit code and standard error of each."""
    errors = [process.communicate(timeout=600)[1] for process in ranks]
    return [(process.wait(), text) for process, text in zip(ranks, errors, strict=True)]


def steps(journal: Path) -> list[dict[str, Any]]:
    return [dict(record) for record, _ in read_records(journal) if record["event"] == "step"]


def curve(run: Path) -> Tensor:
    """Loss and gradient norm of each step, (steps, 2)."""
    found = {s["global_step"]: (s["train_loss"], s["grad_norm"]) for s in steps(run / "metrics.jsonl")}
    return torch.tensor([found[step] for step in sorted(found)], dtype=torch.float64)


def weights(run: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = load(checkpoint_files(run / "checkpoints")[0])["model"]
    return found
