"""Who looks may leave: a terminal that closes and a reader that is gone cost the view, and nothing else."""

from __future__ import annotations

import os
import pty
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from .conftest import Checkout, attempts

Wait = Callable[[Callable[[], bool]], None]

TWO_SLOW = ("CONFIG_MATRIX_AXES=SEED=1|2", "CONFIG_BEHAVIOR=slow", "CONFIG_NUM_STEPS=150")


class OnTerminal:
    """A command whose controlling terminal is ours to close."""

    def __init__(self, command: Sequence[str], *, cwd: Path, hangup_ignored: bool = False) -> None:
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            if hangup_ignored:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.chdir(cwd)
            os.execvpe(command[0], list(command), {**os.environ, "TERM": "xterm-256color"})

    def read(self) -> str:
        return os.read(self._master, 65536).decode(errors="replace")

    def read_until(self, word: str) -> None:
        seen = ""
        while word not in seen:
            seen += self.read()

    def children(self) -> int:
        return len(Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split())

    def close(self) -> None:
        os.close(self._master)

    def exit_code(self) -> int:
        """Exit code as a shell reports it."""
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return status if status >= 0 else 128 - status


def ended_as(checkout: Checkout) -> list[Any]:
    return [attempts(run, "cause") for run in sorted(checkout.latest.glob("seed-*"))]


def test_a_matrix_outlives_its_terminal(checkout: Checkout) -> None:
    terminal = OnTerminal(checkout.command("test_matrix", *TWO_SLOW), cwd=checkout.root, hangup_ignored=True)
    terminal.read_until("1 running")
    terminal.close()
    assert terminal.exit_code() == 0
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "complete"}
    assert (checkout.latest / "report.html").exists()


@pytest.mark.parametrize("leader", ["runner", "shell"])
def test_a_terminal_that_closes_stops_in_good_order(
    checkout: Checkout, wait_until: Wait, leader: str
) -> None:
    """Below a shell that dies of it the runner gets a second SIGHUP, which is no request to kill."""
    command = checkout.command("test_matrix", *TWO_SLOW, "CONFIG_NUM_STEPS=5000")
    if leader == "shell":
        command = ["sh", "-c", '"$@"; echo $? >code', "sh", *command]
    terminal = OnTerminal(command, cwd=checkout.root)
    terminal.read_until("1 running")
    terminal.close()
    assert terminal.exit_code() == 128 + signal.SIGHUP
    wait_until(lambda: (checkout.latest / "report.html").exists())
    assert checkout.statuses() == {"seed-1": "interrupted", "seed-2": "pending"}
    assert ended_as(checkout) == [[("stopped",)], []]


def test_the_report_outlives_the_terminal(checkout: Checkout, wait_until: Wait) -> None:
    """It is begun when nobody needs to look any more."""
    checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=1|2")
    (checkout.latest / "report.html").unlink()
    terminal = OnTerminal(checkout.command("continue"), cwd=checkout.root)
    wait_until(lambda: terminal.children() > 0)
    terminal.close()
    assert terminal.exit_code() == 0
    assert (checkout.latest / "report.html").exists()


def with_reader_gone(checkout: Checkout, script: str, *arguments: str) -> int:
    """The exit code where the first line that is printed finds nobody."""
    read, write = os.pipe()
    os.close(read)
    try:
        return checkout.start(script, *arguments, stdout=write, stderr=write).wait()
    finally:
        os.close(write)


def test_a_matrix_outlives_its_reader(checkout: Checkout) -> None:
    given = ("CONFIG_MATRIX_AXES=SEED=1|2", "CONFIG_BEHAVIOR=crash@2")
    assert with_reader_gone(checkout, "test_matrix", *given) == 3
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "failed"}
    assert (checkout.latest / "report.html").exists()


@pytest.fixture(scope="module")
def trained(make_checkout: Callable[[], Checkout]) -> Checkout:
    checkout = make_checkout()
    assert checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=1|2")[0] == 0
    return checkout


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("train", "CONFIG_BEHAVIOR=exit-7"), 7),
        (("sweep", "RANGE_CONFIG=my.ranges"), 0),
        (("continue", "RUN=matrix"), 0),
        (("test_rerun", "TARGET=matrix", "FILTER=SEED=1"), 0),
        (("sync", "RUN=matrix"), 0),
        (("status", "RUN=matrix"), 0),
        (("status", "RUN=nowhere"), 2),
        (("logs", "RUN=matrix", "CELL=seed-1"), 0),
        (("summary", "RUN=matrix"), 0),
        (("compare", "A=matrix/seed-1", "B=matrix/seed-2"), 0),
        (("kconfig", "defconfig", "CONFIG_SEED=x"), 2),
    ],
    ids=lambda command: command[0] if isinstance(command, tuple) else "",
)
def test_a_reader_that_is_gone_changes_no_exit_code(
    trained: Checkout, tmp_path: Path, command: Sequence[str], code: int
) -> None:
    checkout = trained.copy(tmp_path / "checkout")
    checkout.latest.rename(checkout.root / "matrix")
    (checkout.root / "my.ranges").write_text("CONFIG_LEARNING_RATE=0.1|0.01\n")
    assert with_reader_gone(checkout, *command) == code


def test_who_follows_a_log_ends_with_its_reader(checkout: Checkout, wait_until: Wait) -> None:
    runner = checkout.start("train", "CONFIG_BEHAVIOR=slow", "CONFIG_NUM_STEPS=100000")
    wait_until(lambda: any(checkout.root.glob("results/*/output.log")))
    try:
        assert with_reader_gone(checkout, "logs", "FOLLOW=y") == 0
        assert runner.poll() is None
    finally:
        runner.kill()
        runner.communicate()
