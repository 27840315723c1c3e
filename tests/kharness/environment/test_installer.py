"""A terminal during a set-up: seconds pass there while an installer says nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PIP = """\
#!/bin/sh
echo 'Installing collected packages: number-cruncher, torch'
read line < unpacked
"""
PROGRAM = """\
from pathlib import Path
from kharness.environment.installer import Installer, watched
Installer(Path("venv"), None).install([], "torch")
watched(["sh", "-c", "read line < imported"], None, "importing")
"""


def test_seconds_pass_on_a_terminal_while_nothing_is_said(root: Path, tmp_path: Path) -> None:
    """A shell stands for pip; it and what is watched end once the terminal has shown the first second."""
    pip = tmp_path / "venv/lib/python3/site-packages/pip/__main__.py"
    python = tmp_path / "venv/bin/python"
    for path in (pip, python):
        path.parent.mkdir(parents=True)
        path.write_text(PIP)
    python.chmod(0o755)
    # one each: a reader of the same would be ended by the close of the writer before
    ends = {"unpacking 2 packages": tmp_path / "unpacked", "importing": tmp_path / "imported"}
    for end in ends.values():
        os.mkfifo(end)
    master, slave = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(root / "lib")}
    command = [sys.executable, "-c", PROGRAM]
    shown = ""
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        for state, end in ends.items():
            while not re.search(rf"{state}, \d+ s$", shown):
                shown += os.read(master, 1).decode()
            end.write_text("\n")
    os.close(master)
    assert (process.returncode, shown.count("\x1b[2K  unpacking 2 packages\r")) == (0, 1)
