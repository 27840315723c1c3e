"""LOG_LEVEL, DEP_LOG_LEVEL and LOG_MODEL_SUMMARY in a training of the loop."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from monitoring import read_records

from ...warm_python import WarmPython

FLAGS = ("--batch-size", "30", "--num-epochs", "1", "--device", "cpu", "--tracker", "none")
LEVELS = ["debug", "info", "warning", "error"]
SUMMARY = "model: Sequential, 161 parameters: 0 144, 1 17"


def trained(
    warm: WarmPython, root: Path, run: Path, *flags: str, **env: str
) -> subprocess.CompletedProcess[str]:
    """One step of tests/data/ddp/train.py."""
    command = [root / "tests/data/ddp/train.py", "--run-dir", run, *FLAGS, *flags]
    return warm.run(command, env={**os.environ, **env})


def test_what_a_training_prints(warm_torch: WarmPython, root: Path, tmp_path: Path) -> None:
    usual = trained(warm_torch, root, tmp_path / "usual")
    assert (usual.returncode, usual.stderr) == (0, "")
    configuration, *lines = usual.stdout.splitlines()
    assert lines.count(SUMMARY) == 1
    silent = trained(warm_torch, root, tmp_path / "silent", "--log-level", "warning")
    of_flags = configuration.removesuffix(", then flags")
    assert (silent.returncode, silent.stdout.startswith(of_flags), silent.stderr) == (0, True, "")
    assert len(silent.stdout.splitlines()) == 1, "which configuration it is"
    journals = [read_records(tmp_path / run / "metrics.jsonl") for run in ("usual", "silent")]
    events = [[record["event"] for record, _ in journal] for journal in journals]
    assert events[0] == events[1]


@pytest.mark.parametrize("level", ["debug", "warning", "error"])
def test_what_dependencies_log(warm_torch: WarmPython, root: Path, tmp_path: Path, level: str) -> None:
    flags = ("--dep-log-level", level, "--no-log-model-summary")
    done = trained(warm_torch, root, tmp_path / "run", *flags, LOGS="1")
    assert (done.returncode, "model: " in done.stdout) == (0, False)
    verbosity = f"verbosity: {None if level == 'warning' else level}"
    lines = done.stderr.splitlines()
    lines.remove(verbosity)
    shown = LEVELS[LEVELS.index(level) :]
    # of a package without handlers, and of one that has its own
    assert [sum(line.endswith(it) for line in lines) for it in LEVELS] == [2 * (it in shown) for it in LEVELS]
    assert ("by warnings" in done.stderr) == (level != "error")
