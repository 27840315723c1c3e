"""`make sync`: any follower, at any later time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from monitoring import Run
from monitoring.agent.lock import is_followed

from ..warm_python import WarmPython

Sync = Callable[..., tuple[int, str, str]]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Two finished runs that nobody has followed."""
    for name in ("a", "b"):
        with Run(tmp_path / "matrix" / name, name=name, project="p", config={}, agent=False) as run:
            run.log_step(1, train_loss=0.5)
    return tmp_path / "matrix"


@pytest.fixture
def sync(root: Path, warm_python: WarmPython) -> Sync:
    """Exit code, output and errors of the script."""

    def run(*variables: str) -> tuple[int, str, str]:
        done = warm_python.run(["scripts/sync.py", *variables], cwd=root)
        return done.returncode, done.stdout, done.stderr

    return run


def test_sync_brings_every_run_of_a_matrix_up_to_date(sync: Sync, matrix: Path) -> None:
    lines = [f"{matrix}/{name}: csv: {{}} new records, 2 in all\n" for name in ("a", "b")]
    assert sync(f"RUN={matrix}") == (0, "".join(lines).format(2, 2), "")
    assert sync(f"RUN={matrix}") == (0, "".join(lines).format(0, 0), "")


def test_sync_adds_a_tracker_that_the_run_did_not_have(sync: Sync, matrix: Path) -> None:
    code, out, err = sync(f"RUN={matrix}/a", "TRACKER=tensorboard")
    assert (code, err) == (0, "")
    assert out == (
        f"{matrix}/a: csv: 2 new records, 2 in all\n{matrix}/a: tensorboard: 2 new records, 2 in all\n"
    )
    assert list((matrix / "a" / "tensorboard").iterdir())


def test_sync_of_a_run_that_is_complete_has_nothing_new(sync: Sync, matrix: Path) -> None:
    """The end record has no points: no sink of a tracker shows that it came."""
    lines = [f"{matrix}/a: {name}: {{}}, 2 in all\n" for name in ("csv", "tensorboard")]
    for count in ("2 new records", "0 new records"):
        assert sync(f"RUN={matrix}/a", "TRACKER=tensorboard") == (
            0,
            "".join(lines).format(count, count),
            "",
        )
    [events] = (matrix / "a" / "tensorboard").iterdir()

    with Run(matrix / "a", name="a", project="p", config={}, agent=False) as run:
        run.log_step(2, train_loss=0.5)
        written = sync(f"RUN={matrix}/a", "TRACKER=tensorboard")
    lines = [f"{matrix}/a: {name}: 1 new record, 3 in all\n" for name in ("csv", "tensorboard")]
    assert written == (0, "".join(lines), "")
    assert events in (matrix / "a" / "tensorboard").iterdir()


def test_sync_says_what_is_put_aside(sync: Sync, matrix: Path) -> None:
    journal = matrix / "a" / "gpu_stats.jsonl"
    journal.write_text('{"event":"gpu","seq":1,"attempt":1,"time":0}\n')
    for new in ("3 new records", "0 new records"):
        _, out, _ = sync(f"RUN={matrix}/a", "TRACKER=tensorboard")
        assert out.splitlines()[1] == (
            f"{matrix}/a: tensorboard: {new}, 2 in all; 1 record skipped, "
            "last record 1 (gpu): KeyError: 'aggregate_stats'"
        )


# Trains for so many seconds, one step every 10 ms, with an agent.
TRAINING = """
import sys, time
from pathlib import Path
from monitoring import Run
from monitoring.agent.lock import is_followed
with Run(Path(sys.argv[1]), name="n", project="p", config={}) as run:
    print("begun", flush=True)
    for step in range(1, int(float(sys.argv[2]) * 100) + 1):
        run.log_step(step, train_loss=1 / step)
        time.sleep(0.01)
"""


def training(directory: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAINING, str(directory), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    while not is_followed(directory):
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_sync_of_a_run_that_goes_on_returns_when_its_agent_has_delivered(sync: Sync, tmp_path: Path) -> None:
    with training(tmp_path / "run", 600) as process:
        try:
            code, out, err = sync(f"RUN={tmp_path / 'run'}")
        finally:
            process.kill()
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == (
        f"{tmp_path}/run: it is still training, and its agent has delivered everything so far"
    )


def test_sync_with_a_further_tracker_waits_for_the_agent_and_says_so(sync: Sync, tmp_path: Path) -> None:
    with training(tmp_path / "run", 3) as process:
        code, out, err = sync(f"RUN={tmp_path / 'run'}", "TRACKER=tensorboard")
        assert process.wait() == 0
    first, *_, csv, added = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith(f"{tmp_path}/run: waiting for its agent: ")
    assert csv == f"{tmp_path}/run: csv: 0 new records, 301 in all"
    assert added == f"{tmp_path}/run: tensorboard: 301 new records, 301 in all"


def test_sync_says_which_follower_fails_and_delivers_the_others(sync: Sync, matrix: Path) -> None:
    (matrix / "a" / "metrics.csv").mkdir()
    code, out, err = sync(f"RUN={matrix}/a", "TRACKER=tensorboard")
    assert (code, out) == (2, f"{matrix}/a: tensorboard: 2 new records, 2 in all\n")
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
            "error: unknown tracker '../x'\nhint: known trackers: mlflow, tensorboard, trackio, wandb\n",
        ),
    ],
)
def test_sync_refuses_what_it_cannot_do(sync: Sync, variables: tuple[str, ...], error: str) -> None:
    assert sync(*variables) == (2, "", error)
