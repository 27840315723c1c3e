"""A training that was started without make: its output is kept, and status and logs know how it stands."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kharness.matrix.overview import look, status_lines
from kharness.matrix.selected_runs import find

from ..waiting import wait_until
from ..warm_python import WarmPython
from .conftest import Trained

Train = Callable[..., Trained]


def status(run: Path, root: Path) -> list[str]:
    return [line.replace(str(run), "RUN") for line in status_lines(look(find(run, root)), str(run))]


def logs(run: Path, root: Path, *arguments: str) -> str:
    command = [sys.executable, str(root / "scripts/logs.py"), f"RUN={run}", *arguments]
    return subprocess.run(
        command, env=os.environ | {"KHARNESS_MAKE_VARS": ""}, capture_output=True, text=True
    ).stdout


def test_what_is_printed_is_in_output_log(train_few: Train) -> None:
    done = train_few("--num-epochs", "2", "--batch-size", "36")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("test_loss ")
    assert (done.directory / "output.log").read_text() == done.out


def test_the_last_epoch_is_printed_in_the_documented_words(train_few: Train) -> None:
    """On a terminal each one is (tests/kharness/training/test_opening.py)."""
    done = train_few("--num-epochs", "2", "--batch-size", "36", "--log-every", "1")
    found = [ast.literal_eval(text) for text in re.findall(r"^\{\n.*?^\}", done.out, flags=re.M | re.S)]
    [step] = [record for record in done.records("step") if record["global_step"] == 6]
    epoch = done.records("epoch")[-1]
    assert found == [
        {
            "loss": round(epoch["train_loss"], 4),
            "learning_rate": float(f"{step['lr']:.4g}"),
            "epoch": float(epoch["epoch"]),
            "samples_per_sec": round(step["samples_per_sec"], 1),
        }
    ]


def test_why_it_failed_is_the_last_that_output_log_has(train_few: Train, root: Path) -> None:
    done = train_few("--learning-rate", "1e20", "--max-steps", "50")
    assert done.code == 65
    assert (done.directory / "output.log").read_text() == done.out + done.err
    first, _, line, *_ = status(done.directory, root)  # and the alerts that the agent has judged by now
    name = done.directory.name
    assert first == "run RUN: ended; retry the failed runs with: make test_rerun TARGET=RUN"
    assert line == f"  {name}: failed: NonFiniteError: {done.err.splitlines()[0].removeprefix('error: ')}"


def test_one_under_way_is_told_from_one_that_was_killed(
    train_command: Callable[..., list[str]], tmp_path: Path, root: Path, warm_torch: WarmPython
) -> None:
    results = tmp_path / "results"
    command = train_command(results, "--num-epochs", "1000")
    with warm_torch.start(command[1:], cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        [log] = wait_until(
            lambda: [path for path in results.glob("lenet5_*/output.log") if "epoch 1/" in path.read_text()]
        )
        run = log.parent
        first, count, line = status(run, root)
        assert (first, count) == ("run RUN: running, started without make", "1 run: 1 running")
        assert line.startswith(f"  {run.name}: step ")
        process.send_signal(signal.SIGKILL)
        process.wait()
    first, count, line = status(run, root)
    assert first == "run RUN: not running; resume with: make continue RUN=RUN"
    assert count == "1 run: 1 killed (signal)"
    assert line.startswith(f"  {run.name}: killed: its process is gone after step ")
    assert logs(run, root, "FOLLOW=y") == log.read_text()
