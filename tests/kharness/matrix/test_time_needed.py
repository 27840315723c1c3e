"""Before a matrix begins, a line says how long each run is and how long all of it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.matrix_json import Plan
from kharness.matrix.time_needed import time_lines
from kharness.runs.launch import Launch

FOUR = ["a", "b", "c", "d"]
LOCAL = {"LAUNCHER": "local"}
SLURM = {"LAUNCHER": "slurm"}


def plan(kind: str = "matrix", *, of_program: bool = False) -> Plan:
    template = {"command": ["train"]} if of_program else {}
    axes = [Axis("SEED", ["1", "2", "3", "4"])]
    made = Plan(directory=Path("results/m"), axes=axes, cells=[], launches=[], template=template)
    return made if kind == "matrix" else Plan(**{**vars(made), "kind": kind})


def launches(**asked: object) -> list[Launch]:
    return [Launch(name, Path("results/m") / name, Path(), "lenet5", asked) for name in FOUR]


@pytest.mark.parametrize(
    ("settings", "expected", "line"),
    [
        (LOCAL, {}, "2 epochs each; a time left is shown once the first run is under way"),
        (LOCAL, dict.fromkeys(FOUR, 30.0), "2 epochs each; estimate: 2:00"),
        (LOCAL, {"a": 30.0, "other": 9.0}, "2 epochs each; estimate: 30 s for 1 run of them"),
        (
            {**LOCAL, "MATRIX_EARLY_STOPPING": True},
            dict.fromkeys(FOUR, 30.0),
            "2 epochs each; estimate: 2:00 at most, as losing runs are stopped early",
        ),
        (SLURM, {}, "2 epochs each; the queue decides when they begin"),
        (
            SLURM,
            {"a": 10.0, "b": 30.0, "c": 90.0},
            "2 epochs each; about 30 s each once begun; the queue decides when they begin",
        ),
    ],
)
def test_the_line_of_a_matrix(settings: dict[str, object], expected: dict[str, float], line: str) -> None:
    assert time_lines(plan(), launches(NUM_EPOCHS=2), settings, expected, jobs=1) == [f"  {line}"]


def test_the_configuration_of_a_program_tells_no_time() -> None:
    unknown = time_lines(plan(of_program=True), launches(), LOCAL, dict.fromkeys(FOUR, 30.0), jobs=1)
    assert unknown == ["  a time left is shown once the first run has ended"]
    begun = time_lines(plan(of_program=True), launches(), LOCAL, {}, jobs=2, begun=True, left=75.0)
    assert begun == ["  estimate: 1:15, 2 at once"]


@pytest.mark.parametrize(
    ("kind", "begun", "how"),
    [
        ("matrix", False, "SEED=… with fewer values, CONFIG_MAX_STEPS=…, JOBS=…"),
        ("sweep", False, "SWEEP_TRIALS=…, MAX_STEPS=…, JOBS=…"),
        ("sweep", True, "JOBS=…"),
    ],
)
def test_of_hours_it_is_said_what_shortens_them(kind: str, begun: bool, how: str) -> None:
    found = time_lines(
        plan(kind), launches(MAX_STEPS=1000), LOCAL, dict.fromkeys(FOUR, 900.0), jobs=1, begun=begun
    )
    assert found == [
        "  1,000 steps each; estimate: 1:00:00",
        f"  to shorten it: {how}; Ctrl-C stops it, and `make continue` goes on",
    ]


def test_trials_that_a_search_has_yet_to_choose_have_no_length() -> None:
    found = time_lines(plan("sweep"), [], LOCAL, {}, jobs=1)
    assert found == ["  a time left is shown once the first run is under way"]
