"""Checks that run beside the tests end with a Ctrl-C."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..waiting import wait_until


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
    """As mypy, which reads all files first; none begins afterwards."""
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
