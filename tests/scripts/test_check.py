"""Ctrl-C in `make check`: what runs beside the tests ends at once, the tests when they have cleaned up."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..waiting import wait_until

# It takes Ctrl-C as pytest does: it ends what it has started, for longer than subprocess.run would wait.
DAEMONS = 'trap \'sleep 1; touch "$0"; exit 2\' INT; touch "$1"; while :; do sleep 0.05; done'
CALLS = """
import runpy, sys
runpy.run_path(sys.argv[1])["ended_by_itself"](["sh", "-c", *sys.argv[2:]])
"""


@pytest.fixture(scope="module")
def beside(root: Path) -> Any:
    """The class of scripts/check.py."""
    spec = importlib.util.spec_from_file_location("check", root / "scripts/check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Beside


def test_all_run_in_turn_and_the_failed_are_named(beside: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with beside({"a": ["true"], "b": ["sh", "-c", "echo why; exit 3"], "c": ["echo", "fine"]}) as checks:
        assert checks.failed() == ["b"]
    told = ["check: a passed in", "check: b FAILED in", "why", "check: c passed in", "fine"]
    assert re.sub(r" \d+ s$", "", capsys.readouterr().out, flags=re.MULTILINE).splitlines() == told


def test_ctrl_c_ends_one_that_does_not_answer_it(
    beside: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a one is mypy, which reads all files first; none begins afterwards."""
    pid, other = tmp_path / "pid", tmp_path / "other"
    deaf = ["sh", "-c", 'trap "" INT; echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 600', pid]

    def interrupted() -> None:
        with beside({"deaf": deaf, "other": ["touch", other]}):
            wait_until(pid.exists, "the first to begin")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not psutil.pid_exists(int(pid.read_text()))
    assert not other.exists()
    assert capsys.readouterr().out == ""


def test_ctrl_c_lets_the_tests_end_what_they_have_started(root: Path, tmp_path: Path) -> None:
    ended, began = tmp_path / "ended", tmp_path / "began"
    script = root / "scripts/check.py"
    command: list[str | Path] = [sys.executable, "-c", CALLS, script, DAEMONS, ended, began]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as check:
        wait_until(began.exists, "the tests")
        # until their start has been noted, which has ended once it sleeps again, nobody waits for them
        wait_until(lambda: psutil.Process(check.pid).status() == psutil.STATUS_SLEEPING, "who waits for them")
        os.killpg(check.pid, signal.SIGINT)
        _, said = check.communicate()
    told = "check: waiting up to 30 s for the tests to clean up"
    assert (said.splitlines()[1], said.splitlines()[-1]) == (told, "KeyboardInterrupt")
    assert ended.exists()
