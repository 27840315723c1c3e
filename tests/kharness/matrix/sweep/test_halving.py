"""Which cells successive halving stops, by the journals that they write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from kharness.matrix.running.execute import ActiveRun
from kharness.matrix.sweep.halving import Halving, open_watcher
from kharness.matrix.sweep.validation import Objective, read_objective, read_validation
from kharness.runs.errors import MatrixError
from kharness.runs.journal_tail import JournalTail
from kharness.runs.launch import Launch

SETTINGS = {"MATRIX_EARLY_STOPPING": True, "MATRIX_HALVING_FACTOR": 3, "MATRIX_HALVING_MIN_EPOCHS": 1}


@dataclass
class Running:
    """A running cell as the watcher sees it."""

    launch: Launch
    state: JournalTail


class Cells:
    """Journals of cells, written a validation at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launches: dict[str, Launch] = {}

    def validate(self, name: str, *losses: float | None, model: str = "m") -> None:
        if name not in self.launches:
            self.launches[name] = Launch(name, self.folder / name, self.folder, model, {"MODEL": model})
            (self.folder / name).mkdir(exist_ok=True)
            self._write(name, {"event": "start", "num_steps": 9})
        for loss in losses:
            step = len(self._lines(name))
            self._write(name, {"event": "step", "global_step": step, "time": 1.0})
            record = {"event": "eval", "split": "val", "global_step": step, "val_loss": loss}
            self._write(name, record if loss is not None else {**record, "nonfinite": ["val_loss"]})

    def running(self, *names: str) -> Sequence[ActiveRun]:
        runs = [Running(self.launches[name], JournalTail(self.folder / name)) for name in names]
        for run in runs:
            run.state.read()
        return cast(Sequence[ActiveRun], runs)

    def _lines(self, name: str) -> list[str]:
        return (self.folder / name / "metrics.jsonl").read_text().splitlines()

    def _write(self, name: str, record: dict[str, Any]) -> None:
        path = self.folder / name / "metrics.jsonl"
        seq = len(self._lines(name)) + 1 if path.exists() else 1
        with path.open("a") as file:
            file.write(json.dumps({"seq": seq, "attempt": 1, **record}) + "\n")


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return Cells(tmp_path)


def watcher(cells: Cells, **settings: object) -> Halving:
    found = open_watcher({**SETTINGS, **settings}, list(cells.launches.values()))
    assert found is not None
    return found


def test_cells_compete_at_rungs_with_those_that_came_so_far(cells: Cells) -> None:
    halving = watcher(cells)
    cells.validate("a", 1.0)
    assert halving.look(cells.running("a")) == {}
    cells.validate("b", 2.0)
    cells.validate("c", 0.5)
    assert halving.look(cells.running("a", "b", "c")) == {
        "b": "rung 1 (validation 1): val_loss 2 is not among the best 1/3 of the 2 cells that came so far"
    }
    cells.validate("a", 0.9)
    cells.validate("c", 0.4)
    assert halving.look(cells.running("a", "c")) == {}, "the second validation is no rung"
    cells.validate("c", 0.3)
    assert halving.look(cells.running("a", "c")) == {}
    cells.validate("a", 0.8)
    assert halving.look(cells.running("a", "c")) == {
        "a": "rung 2 (validation 3): val_loss 0.8 is not among the best 1/3 of the 2 cells that came so far"
    }


def test_who_lost_at_a_rung_and_has_come_further_since_is_stopped(cells: Cells) -> None:
    """Short epochs: several end between two looks."""
    halving = watcher(cells)
    cells.validate("a", 1.0)
    assert halving.look(cells.running("a")) == {}
    cells.validate("b", 2.0, 1.9)
    assert halving.look(cells.running("a", "b")) == {
        "b": "rung 1 (validation 1): val_loss 2 is not among the best 1/3 of the 2 cells that came so far"
    }


def test_who_began_and_ended_between_two_looks_competes(cells: Cells) -> None:
    cells.validate("quick")
    cells.validate("slow")
    halving = watcher(cells)
    cells.validate("quick", 1.0)
    cells.validate("slow", 2.0)
    assert halving.look(cells.running("slow")) == {
        "slow": "rung 1 (validation 1): val_loss 2 is not among the best 1/3 of the 2 cells that came so far"
    }


def test_a_larger_metric_may_be_the_better_one(cells: Cells) -> None:
    halving = Halving(Objective("val_loss_inverse", minimize=False), factor=2, min_epochs=1, launches=[])
    cells.validate("a")
    cells._write("a", {"event": "epoch", "global_step": 1, "val_loss_inverse": 0.9})
    halving.look(cells.running("a"))
    cells.validate("b")
    cells._write("b", {"event": "epoch", "global_step": 1, "val_loss_inverse": 0.1})
    assert list(halving.look(cells.running("a", "b"))) == ["b"]


def test_what_earlier_runners_left_competes_and_is_not_judged_again(cells: Cells) -> None:
    cells.validate("complete", 0.1, 0.1)
    cells.validate("half", 5.0)
    halving = watcher(cells)
    assert halving.look(cells.running("half")) == {}, "it was let through, or it would not run"
    cells.validate("half", 5.0, 5.0)
    cells.validate("new", 0.2)
    losing = halving.look(cells.running("half", "new"))
    assert list(losing) == ["new"]
    assert losing["new"].endswith("of the 3 cells that came so far")


def test_cells_of_another_model_do_not_compete(cells: Cells) -> None:
    halving = watcher(cells)
    cells.validate("a", 0.1)
    cells.validate("b", 7.0, model="other")
    assert halving.look(cells.running("a", "b")) == {}


def test_a_value_that_is_not_finite_loses(cells: Cells) -> None:
    halving = watcher(cells)
    cells.validate("a", None)
    assert halving.look(cells.running("a")) == {"a": "validation 1: val_loss is not finite"}


def test_a_cell_that_has_made_its_last_step_is_left_alone(cells: Cells) -> None:
    halving = watcher(cells, MATRIX_HALVING_MIN_EPOCHS=5)
    cells.validate("a", 1.0, 1.0, 1.0, 1.0, 1.0)
    cells.validate("b", 2.0, 2.0, 2.0, 2.0, 2.0)
    assert halving.look(cells.running("a", "b")) == {}


def test_it_is_off_unless_asked_for(cells: Cells) -> None:
    assert open_watcher({"MATRIX_EARLY_STOPPING": False}, []) is None
    assert open_watcher({}, []) is None


def test_what_a_resumed_attempt_does_again_replaces_the_first(cells: Cells) -> None:
    cells.validate("a", 3.0, 2.0)
    cells._write("a", {"event": "start", "attempt": 2, "supersedes": {"first_seq": 4, "last_seq": 5}})
    cells._write("a", {"event": "eval", "split": "val", "global_step": 4, "val_loss": 1.5})
    cells._write("a", {"event": "eval", "split": "test", "global_step": 4, "val_loss": 0.0})
    assert read_validation(cells.folder / "a", "val_loss") == [3.0, 1.5]


@pytest.mark.parametrize("metric", ["test_accuracy", "train_loss", ""])
def test_only_a_metric_of_the_validation_set_chooses(metric: str) -> None:
    with pytest.raises(MatrixError):
        read_objective({"SWEEP_METRIC": metric})
