"""`kharness matrix` of a script with Hydra: overrides, its folders, one that is killed and continued."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from monitoring.journal.lineage import counting
from monitoring.journal.records import read_records

from ....processes import is_gone
from ....waiting import wait_until
from ..conftest import Begin, Command

TRAINS = Path(__file__).with_name("hydra_trains.py")


def losses(run: Path) -> list[tuple[object, object]]:
    """Step and loss of each step that counts."""
    records = counting(record for record, _ in read_records(run / "metrics.jsonl"))
    return [(r["global_step"], r["train_loss"]) for r in records if "train_loss" in r]


def expected(lr: float, steps: int = 10) -> list[tuple[object, object]]:
    return [(step, float(f"{1 / step / lr:.6f}")) for step in range(1, steps + 1)]


def overrides(folder: Path) -> list[str]:
    return (folder / ".hydra" / "overrides.yaml").read_text().splitlines()


def test_overrides_reach_the_script_and_each_run_has_its_folder(tmp_path: Path, kharness: Command) -> None:
    program = [sys.executable, TRAINS, "lr={lr}", "optimizer.name={name}", "hydra.run.dir={run_dir}/hydra"]
    axes = ["-a", "lr=0.5,2", "-a", "name=adam", "--jobs", 2]
    ended = kharness(tmp_path, "matrix", *axes, "--", *program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    matrix = (tmp_path / "results" / "latest").resolve()
    for lr in ("0.5", "2"):
        run = matrix / f"lr-{lr}"
        assert losses(run) == expected(float(lr))
        assert overrides(run / "hydra") == [f"- lr={lr}", "- optimizer.name=adam"]
    assert "val loss compared with lr=0.5" in ended.stdout
    assert not (tmp_path / "outputs").exists()


def test_killed_run_goes_on_in_the_folder_that_hydra_gave_it(
    tmp_path: Path, kharness: Command, begin_kharness: Begin
) -> None:
    words = ["run", "--", sys.executable, str(TRAINS), "lr=0.5", "hydra.run.dir={run_dir}/hydra", "hold=8"]
    runner = begin_kharness(tmp_path, *words)
    run = tmp_path / "results" / "latest"
    wait_until(lambda: (run / "output.log").exists() and "step 7" in (run / "output.log").read_text())
    below = psutil.Process(runner.pid).children(recursive=True)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    wait_until(lambda: all(is_gone(process) for process in below))
    ended = kharness(tmp_path, "continue")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert losses(run) == expected(0.5)
    starts = [r for r, _ in read_records(run / "metrics.jsonl") if r["event"] == "start"]
    assert starts[-1]["resumed_from"] == {"checkpoint": None, "global_step": 5}


def test_without_a_folder_of_ours_hydra_makes_its_own(tmp_path: Path, kharness: Command) -> None:
    ended = kharness(tmp_path, "run", "--", sys.executable, TRAINS, "lr=0.5", "steps=3")
    assert ended.returncode == 0, ended.stderr
    assert losses(tmp_path / "results" / "latest") == expected(0.5, steps=3)
    (folder,) = (tmp_path / "outputs").glob("*/*")
    assert overrides(folder) == ["- lr=0.5", "- steps=3"]


@pytest.mark.parametrize("word", ["-m", "--multirun"])
def test_multirun_is_refused(tmp_path: Path, word: str, kharness: Command) -> None:
    refused = kharness(tmp_path, "run", "--", sys.executable, TRAINS, word, "lr=0.1,0.3")
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        f"error: {word} has Hydra train several times in one run",
        "hint: make them runs of a matrix: kharness matrix -a lr=0.1,0.3 -- python train.py lr={lr}",
    ]
    assert os.listdir(tmp_path) == []
