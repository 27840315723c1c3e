"""GPUs and the machine are sampled while anybody's program runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..conftest import Command
from .test_commands import TRAINS, folder

__all__ = ["folder"]

GPUS = {"interval": 1.0, "hour_price": 0.0, "file_mb": 64, "files": 16}
MACHINE = {"interval": 1.0, "file_mb": 16, "files": 8}


def asked(run: Path) -> tuple[object, object]:
    content = json.loads((run / "run.json").read_text())
    return content["gpu_monitor"], content["machine_monitor"]


def test_runs_are_sampled_as_they_were_asked_to(folder: Path, kharness: Command) -> None:
    program = [sys.executable, TRAINS, "--lr", "{lr}", "--steps", "3"]
    for words in (["run", "--gpu-monitor", "--", "true"], ["run", "--", "true"]):
        assert kharness(folder, *words).returncode == 0
    (folder / "kharness.toml").write_text("machine-monitor = true\n")
    assert kharness(folder, "matrix", "-a", "lr=1", "--", *program).returncode == 0
    *single, matrix = sorted((folder / "results").glob("[!l]*"), key=lambda path: path.stat().st_mtime_ns)
    assert [asked(run) for run in (*single, matrix / "lr-1")] == [
        (GPUS, MACHINE),
        (False, False),
        (False, MACHINE),
    ]
