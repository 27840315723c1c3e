"""Work done in a child: what it says, its result, its errors, its death and that of its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kharness.config.errors import KharnessError
from kharness.matrix.running.delivery import apart
from kharness.runs.errors import MatrixError
from kharness.runs.lock import RunnerLock, holder
from monitoring.host.process import process_started

Say = Callable[[str], None]


def unheard(line: str) -> None:
    raise AssertionError(line)


def test_the_result_comes_back_and_nothing_else_does() -> None:
    seen: list[int] = []

    def work(say: Say) -> tuple[int, list[str]]:
        seen.append(1)
        return os.getpid(), ["a" * 200_000]

    pid, lines = apart(work, unheard)
    assert (pid == os.getpid(), lines, seen) == (False, ["a" * 200_000], [])


def test_what_it_says_is_heard_before_its_end() -> None:
    said: list[tuple[int, str]] = []

    def work(say: Say) -> None:
        say("one")
        say("two")
        raise KharnessError("no room")

    with pytest.raises(KharnessError, match="no room"):
        apart(work, lambda line: said.append((os.getpid(), line)))
    assert said == [(os.getpid(), "one"), (os.getpid(), "two")]


def test_an_error_comes_back_with_its_hint() -> None:
    def work(say: Say) -> None:
        raise KharnessError("no baseline", hint="name one")

    with pytest.raises(KharnessError, match="no baseline") as found:
        apart(work, unheard)
    assert found.value.hint == "name one"


def test_a_child_that_dies_is_told() -> None:
    with pytest.raises(MatrixError, match="the report ended with exit code -9"):
        apart(lambda say: os.kill(os.getpid(), 9), unheard)


# A runner that is in the middle of its report; the process that makes it says its id.
REPORTING = """
import os, sys, time
from pathlib import Path
from kharness.matrix.running.delivery import apart
from kharness.runs.lock import RunnerLock

def work(say):
    say(str(os.getpid()))
    time.sleep(600)

with RunnerLock(Path(sys.argv[1])):
    apart(work, lambda line: print(line, flush=True))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux kills it")
def test_a_runner_that_is_killed_takes_its_report_along(
    tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    command = [sys.executable, "-c", REPORTING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        child = int(runner.stdout.readline())
        found = holder(tmp_path)
        assert found is not None
        assert found.pid == runner.pid
        open_files = [os.readlink(path) for path in Path(f"/proc/{child}/fd").iterdir()]
        assert str(tmp_path / ".runner.lock") not in open_files
        runner.kill()
        runner.wait()
        assert holder(tmp_path) is None
        with RunnerLock(tmp_path):
            pass
    wait_until(lambda: process_started(child) is None)


def test_a_dead_process_runs_nothing(tmp_path: Path) -> None:
    """A lock that something else holds on, and the name of a runner that is gone."""
    with RunnerLock(tmp_path):
        lock = tmp_path / ".runner.lock"
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        lock.write_text(lock.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {gone.pid}'))
        assert holder(tmp_path) is None
        with pytest.raises(MatrixError) as refused, RunnerLock(tmp_path):
            pass
    assert (str(refused.value), refused.value.hint) == (
        f"{tmp_path} is still locked, though its runner, pid {gone.pid}, is gone",
        "wait for the end of what that has started, then try again",
    )
