"""Metrics of a program's test split are the run's result, like those of a training of the tree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from monitoring.journal.lineage import counting_in

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


# Lines of programs that end with their result, whose step nobody names; the last line of each is another's.
ENDS = "print('step 3 loss 0.5'); print('test loss 0.5'); print('Test accuracy: 91.5%')"


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        ("", [{"global_step": 3, "split": "test", "test_loss": 0.5, "test_accuracy": 91.5}]),
        ("print('step 4 loss 0.4')", []),  # it was of step 3, or of none
        ("raise SystemExit(1)", []),
        ("print('best test loss 0.1')", [{"test_loss": 0.5, "test_accuracy": 91.5}]),
    ],
)
def test_line_at_the_end_of_a_program_is_its_result(
    tmp_path: Path, bridged: Bridged, rest: str, found: list[dict[str, object]]
) -> None:
    bridged(tmp_path / "run", sys.executable, "-c", f"{ENDS}; {rest}")
    wanted = [{"global_step": 3, "split": "test", **one} for one in found]
    assert records(tmp_path / "run", "eval") == wanted
    (end,) = records(tmp_path / "run", "end")
    assert [end.get("test_loss"), end.get("test_accuracy")] == ([0.5, 91.5] if found else [None, None])


def test_result_of_an_attempt_with_nothing_left_to_do_takes_no_step_away(
    tmp_path: Path, bridged: Bridged
) -> None:
    done = tmp_path / "done"
    program = f"""
import os, pathlib
if not os.path.exists({str(done)!r}):
    pathlib.Path({str(done)!r}).touch()
    print("step 1 loss 0.5")
    print("step 2 loss 0.4")
print("test loss 0.3")
"""
    for _ in range(2):
        bridged(tmp_path / "run", sys.executable, "-c", program)
    journal = tmp_path / "run" / "metrics.jsonl"
    counted = [(one["event"], one["attempt"], one["global_step"]) for one in counting_in(journal)
               if one["event"] in ("step", "eval")]  # fmt: skip
    assert counted == [("step", 1, 1), ("step", 1, 2), ("eval", 2, 2)]
