"""Ranks that a test has started do not outlive one of them that fails."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from ....warm_python import WarmPython
from .ranks import run_ranks

FAILS = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
if os.environ["RANK"] == "1":
    (folder / "writing").write_text(str(os.getpid()))
    (folder / "writing").rename(folder / "pid")
    signal.pause()
while not (folder / "pid").exists():
    time.sleep(0.01)
sys.exit("this rank fails")
"""


def test_other_ranks_end_with_one_that_fails(tmp_path: Path, warm_python: WarmPython) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    with pytest.raises(AssertionError, match="this rank fails"):
        run_ranks(warm_python, tmp_path / "fails.py", tmp_path, 2)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
