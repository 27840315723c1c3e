"""From the metrics that a framework logs by names of the user's own to records with the names of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitoring.run import Run

# Names that frameworks and their examples use -> ours; every other name stays.
STEP_NAMES = {
    "loss": "train_loss",
    "train/loss": "train_loss",
    "train_loss_step": "train_loss",
    "learning_rate": "lr",
    "gradient_norm": "grad_norm",
}
# How the name of a measurement begins -> the split that it was measured on.
SPLITS = {"val": "val", "valid": "val", "validation": "val", "eval": "val", "test": "test"}


class Logged:
    """Records what a framework logs. Without steps of its own they are counted from 1."""

    def __init__(self) -> None:
        self._step = 0

    def record(self, run: Run, metrics: Mapping[str, Any], step: int | None, **fields: object) -> None:
        """One record of the measurements on each split, and one of the rest with the `fields`, if any."""
        self._step = self._step + 1 if step is None else step
        of_split: dict[str, dict[str, object]] = {}
        of_step: dict[str, object] = {}
        for name, value in metrics.items():
            split, short = measured(name)
            if split is None:
                of_step[STEP_NAMES.get(name, name)] = value
            else:
                of_split.setdefault(split, {})[f"{split}_{short}"] = value
        # Lightning adds the epoch to all that it logs
        if of_step.keys() - {"epoch"}:
            run.log_step(self._step, **fields, **of_step)
        for split, found in of_split.items():
            run.log_eval(self._step, split=split, **found)


def measured(name: str) -> tuple[str | None, str]:
    """The split that a metric was measured on, and its name without that: `valid/loss` is ("val", "loss")."""
    for mark in ("/", "_"):
        prefix, found, rest = name.partition(mark)
        if found and rest and prefix in SPLITS:
            return SPLITS[prefix], rest
    return None, name
