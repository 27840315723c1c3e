"""Metrics of a program's test split are the run's result, like those of a training of the tree."""

from __future__ import annotations

import sys
from pathlib import Path

from .conftest import Bridged
from .test_sources import records

# As pytorch/examples' mnist/main.py prints; the last one counts.
PRINTS = """
for epoch, loss in ((1, 0.5), (2, 0.25)):
    print(f"Train Epoch: {epoch} [640/60000 (1%)]\\tLoss: {2 * loss}")
    print(f"Test set: Average loss: {loss}, Accuracy: {100 - epoch}/100 ({100 - epoch}%)")
"""


def test_what_was_measured_last_on_the_test_split_is_in_the_end_record(
    tmp_path: Path, bridged: Bridged
) -> None:
    bridged(tmp_path / "run", sys.executable, "-c", PRINTS)
    assert records(tmp_path / "run", "end") == [
        {
            "status": "complete",
            "first_step": 1,
            "steps_done": 2,
            "test_loss": 0.25,
            "test_accuracy_percent": 98,
        }
    ]
