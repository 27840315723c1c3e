"""Planning that is cut off: no half of a directory, and no older one in its place without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kharness.matrix.planning.begin import Planning
from kharness.runs.lock import RunnerLock

from ..conftest import Checkout

# A planner that says when it is in the middle of its work.
PLANNER = """
import os, sys, time
from pathlib import Path
from kharness.matrix.planning.begin import Planning

results, name, published = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "published"
with Planning.begin(results, name) as planning:
    (planning.directory / "seed-1").mkdir(parents=True)
    if published:
        os.rename(planning.directory, planning.place)
    print("planning", flush=True)
    time.sleep(600)
"""


def planner(results: Path, name: str, *, published: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PLANNER, str(results), name, "published" if published else "cut off"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "planning\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def older(make_checkout: Callable[[], Checkout]) -> Checkout:
    """A checkout whose matrix is complete."""
    checkout = make_checkout()
    assert checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=1")[0] == 0
    return checkout


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("test_matrix_20991231T235959Z", "make test_matrix"),
        ("sweep_20991231T235959Z", "make sweep RANGE_CONFIG=file"),
        ("my-run", "make train"),
    ],
)
def test_what_was_cut_off_is_named_and_no_older_one_taken_up(
    older: Checkout, tmp_path: Path, name: str, again: str
) -> None:
    checkout = older.copy(tmp_path / "checkout")
    matrix = f"results/{checkout.latest.name}"
    kill(planner(checkout.root / "results", name))
    assert not (checkout.root / "results" / name).exists()
    for script in ("continue", "test_rerun"):
        code, output = checkout.run(script)
        assert (code, output.splitlines()) == (
            2,
            [
                f"error: results/{name} was cut off while it was being planned; nothing of it has run",
                f"hint: plan it again: {again}; or name the one before it: RUN={matrix}",
            ],
        )
    code, output = checkout.run("status")
    assert (code, output.splitlines()[:2]) == (
        0,
        [
            f"note: results/{name} was cut off while it was being planned; nothing of it has run",
            f"matrix {matrix}: complete",
        ],
    )


def test_the_one_before_can_be_named_and_a_newer_one_ends_it(older: Checkout, tmp_path: Path) -> None:
    checkout = older.copy(tmp_path / "checkout")
    matrix = checkout.latest.name
    kill(planner(checkout.root / "results", "test_matrix_20991231T235959Z"))
    code, output = checkout.run("continue", f"RUN=results/{matrix}")
    assert (code, output.splitlines()[0]) == (0, f"matrix: complete: 1 run in results/{matrix}")
    assert checkout.run("train")[0] == 0
    code, output = checkout.run("continue")
    assert (code, output.splitlines()) == (0, [f"results/{checkout.latest.name} is complete"])


def test_one_that_is_being_planned_is_waited_for(older: Checkout, tmp_path: Path) -> None:
    checkout = older.copy(tmp_path / "checkout")
    process = planner(checkout.root / "results", "test_matrix_20991231T235959Z")
    try:
        code, output = checkout.run("continue")
    finally:
        kill(process)
    assert code == 2
    assert output.splitlines() == [
        "error: results/test_matrix_20991231T235959Z is being planned by "
        f"pid {process.pid} on {os.uname().nodename}",
        f"hint: wait until it runs; or name the one before it: RUN=results/{checkout.latest.name}",
    ]


def test_one_that_was_planned_and_not_begun_is_named(older: Checkout, tmp_path: Path) -> None:
    """Killed between its last two steps."""
    checkout = older.copy(tmp_path / "checkout")
    kill(planner(checkout.root / "results", "test_matrix_20991231T235959Z", published=True))
    code, output = checkout.run("continue")
    assert (code, output.splitlines()) == (
        2,
        [
            "error: results/test_matrix_20991231T235959Z was planned, and cut off before it began",
            "hint: name it: RUN=results/test_matrix_20991231T235959Z; "
            f"or name the one before it: RUN=results/{checkout.latest.name}",
        ],
    )


def test_the_first_of_all_is_named_as_well(checkout: Checkout) -> None:
    kill(planner(checkout.root / "results", "test_matrix_20991231T235959Z"))
    code, output = checkout.run("continue")
    assert (code, output.splitlines()) == (
        2,
        [
            "error: results/test_matrix_20991231T235959Z was cut off while it was being planned; "
            "nothing of it has run",
            "hint: plan it again: make test_matrix",
        ],
    )


def test_a_name_is_given_once(tmp_path: Path) -> None:
    first = Planning.begin(tmp_path, "x")
    assert first is not None
    assert Planning.begin(tmp_path, "x") is None
    with first:
        first.directory.mkdir()
        first.publish()
    assert Planning.begin(tmp_path, "x") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "x"]
    assert (tmp_path / "latest").readlink() == Path("x")
    with RunnerLock(tmp_path / "x"):
        pass
