"""`make sync`: any follower, at any later time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from monitoring import Run


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Two finished runs that nobody has followed."""
    for name in ("a", "b"):
        with Run(tmp_path / "matrix" / name, name=name, project="p", config={}, agent=False) as run:
            run.log_step(1, train_loss=0.5)
    return tmp_path / "matrix"


def sync(root: Path, *variables: str) -> tuple[int, str, str]:
    command = [sys.executable, "scripts/sync.py", *variables]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def test_sync_brings_every_run_of_a_matrix_up_to_date(root: Path, matrix: Path) -> None:
    lines = [f"{matrix}/{name}: csv: {{}} records delivered, 2 in all\n" for name in ("a", "b")]
    assert sync(root, f"RUN={matrix}") == (0, "".join(lines).format(2, 2), "")
    assert sync(root, f"RUN={matrix}") == (0, "".join(lines).format(0, 0), "")


def test_sync_adds_a_tracker_that_the_run_did_not_have(root: Path, matrix: Path) -> None:
    code, out, err = sync(root, f"RUN={matrix}/a", "TRACKER=tensorboard")
    assert (code, err) == (0, "")
    assert out == (
        f"{matrix}/a: csv: 2 records delivered, 2 in all\n"
        f"{matrix}/a: tensorboard: 2 records delivered, 2 in all\n"
    )
    assert list((matrix / "a" / "tensorboard").iterdir())


def test_sync_says_which_follower_fails_and_delivers_the_others(root: Path, matrix: Path) -> None:
    (matrix / "a" / "metrics.csv").mkdir()
    code, out, err = sync(root, f"RUN={matrix}/a", "TRACKER=tensorboard")
    assert (code, out) == (2, f"{matrix}/a: tensorboard: 2 records delivered, 2 in all\n")
    assert err.startswith(f"error: {matrix}/a: csv: [Errno 21] Is a directory")


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ((), "error: RUN is not given\nhint: for example make sync RUN=results/latest\n"),
        (("RUN=/no/such",), "error: /no/such is not a directory\nhint: name one that a training wrote\n"),
        (
            ("RUN=tests",),
            "error: tests is not a run directory: it has no run.json\n"
            "hint: name a directory that a training wrote, such as results/RUN\n",
        ),
        (
            ("RUN=tests", "TRACKER=wandb,../x"),
            "error: '../x' is not a known tracker\nhint: known trackers: tensorboard, trackio, wandb\n",
        ),
    ],
)
def test_sync_refuses_what_it_cannot_do(root: Path, variables: tuple[str, ...], error: str) -> None:
    assert sync(root, *variables) == (2, "", error)
