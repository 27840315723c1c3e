"""Ctrl-C while a command still imports what it needs: no traceback, nothing written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAUSES = """
import signal

print("is imported", flush=True)
signal.pause()
"""
HEEDS = """
import signal
from kharness.config.errors import run_command

def main(argv):
    print(argv, flush=True)
    signal.pause()

run_command(main)
"""


def interrupted(words: list[str], root: Path, path: Path) -> tuple[str, int, str]:
    """Return what a command printed, its exit code and its errors, when Ctrl-C came after its first line."""
    environment = {**os.environ, "PYTHONPATH": f"{path}:{root / 'lib'}"}
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env=environment,
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    return line, process.returncode, errors


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("torch", ["lenet5/train.py", "--run-dir", "{}/run"]),
        ("shlex", ["-m", "kharness", "run", "--results", "{}/run", "--", "true"]),
        ("shlex", ["-m", "kharness.quiet", "scripts/train.py", "O={}/run"]),
    ],
)
def test_ctrl_c_during_an_import_ends_it_without_a_word(
    root: Path, tmp_path: Path, module: str, words: list[str]
) -> None:
    (tmp_path / f"{module}.py").write_text(PAUSES)
    said = interrupted([word.format(tmp_path) for word in words], root, tmp_path)
    assert said == ("is imported\n", -signal.SIGINT, "")
    assert not (tmp_path / "run").exists()


def test_a_command_that_runs_hears_of_ctrl_c(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEEDS)
    said = interrupted(["-m", "kharness.quiet", str(script), "a", "b c"], root, tmp_path)
    assert said == ("['a', 'b c']\n", 130, "")
