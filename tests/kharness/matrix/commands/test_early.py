"""A program starts before what follows its run is imported: a runner may end at any moment meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import psutil
import pytest

from ....waiting import wait_until
from ..conftest import Command
from .test_commands import TRAINS, folder, steps_of

__all__ = ["folder"]

# `kharness run` that waits, where it imports a module, until a signal comes.
WAITS = """
import signal, sys

class Waits:
    def find_spec(self, name, *_):
        if name == at:
            sys.meta_path.remove(self)
            print("waits", flush=True)
            signal.pause()

at = sys.argv.pop(1)
sys.meta_path.insert(0, Waits())
from kharness.cli import entry
entry()
"""
# What it imports between a run's plan and the start of its program, and what it imports then to follow it.
PLANNED, BEGUN = "kharness.matrix.running.signals", "kharness.matrix.commands.forked"


@pytest.mark.parametrize(
    ("at", "number", "code", "status"),
    [
        (PLANNED, signal.SIGKILL, -signal.SIGKILL, "pending"),
        (PLANNED, signal.SIGINT, 130, "pending"),
        (BEGUN, signal.SIGKILL, -signal.SIGKILL, "running"),
        (BEGUN, signal.SIGINT, 75, "interrupted"),
    ],
)
def test_run_whose_runner_ends_before_it_can_follow_it(
    folder: Path, kharness: Command, at: str, number: signal.Signals, code: int, status: str
) -> None:
    (hold := folder / "hold").touch()
    program = [sys.executable, str(TRAINS), "--lr", "1", "--steps", "40", "--hold", str(hold)]
    command = [sys.executable, "-c", WAITS, at, "run", "--", *program]
    runner = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert runner.stdout is not None
    (said,) = iter(runner.stdout.readline, b"waits\n")
    assert said.startswith(b"run: results/trains_")
    run = folder / "results" / "latest"
    if at == BEGUN:
        wait_until(lambda: "iter 5" in (run / "output.log").read_text())
    below = psutil.Process(runner.pid).children(recursive=True)
    assert (run / "output.log").exists() == (at == BEGUN)
    os.kill(runner.pid, number)
    assert runner.wait() == code
    runner.stdout.close()
    wait_until(lambda: not any(process.is_running() for process in below))
    hold.unlink()
    assert json.loads((run / "status.json").read_text())["status"] == status
    place = f"results/{run.resolve().name}"
    first = kharness(folder, "status").stdout.splitlines()[0]
    assert first == f"run {place}: not running; resume with: kharness continue {place}"
    assert kharness(folder, "continue").returncode == 0
    assert steps_of(run) == list(range(1, 41))


def test_what_is_said_beside_a_program_breaks_no_word_on_a_terminal(folder: Path) -> None:
    """A line of the program itself is passed on as it is."""
    line = "nothing of a training, and a number: 3, and more"
    command = [sys.executable, "-m", "kharness", "run", "--", sys.executable, "-c", f"print({line!r})"]
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 40))
    runner = subprocess.Popen(command, cwd=folder, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    said = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while content := os.read(master, 65536):
            said += content
    os.close(master)
    assert runner.wait() == 0
    lines = said.decode().splitlines()
    place = lines.index(line)
    assert lines[place + 1 : place + 5] == [
        "no metrics were found; its last line is",
        "  'nothing of a training, and a number:",
        "  3, and more'; --pattern REGEX or",
        "  --follow FILE names them",
    ]


def test_a_bridge_is_forked_before_anything_heavy_is_imported() -> None:
    program = """
import sys
from kharness import cli

cli.parsed(["run", "--", "date"])
from kharness.matrix.commands.early import EarlyBridge
import kharness.matrix.commands.command_line

print(*sorted(set(sys.argv[1:]) & set(sys.modules)))
"""
    heavy = ["bz2", "csv", "dataclasses", "orjson", "shutil", "socket", "subprocess", "textwrap", "uuid"]
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
