"""My model learns: `make M=FOLDER check`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kharness

HERE = Path(__file__).resolve().parent


def test_two_epochs_beat_guessing(tmp_path: Path) -> None:
    flags = ["--run-dir", str(tmp_path / "run"), "--num-epochs", "2", "--optimizer", "adamw"]
    subprocess.run([sys.executable, str(HERE / "train.py"), *flags], check=True)
    (run,) = kharness.runs(tmp_path)
    assert run.status == "complete"
    assert run.last["val_loss"] < 0.65  # log 2, of guessing, is 0.69
