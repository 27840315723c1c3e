"""Facts of processes are compared whole on a recorded /proc, and checked on real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from monitoring.host.process import process_started, reaped
from monitoring.host.process_facts import ProcessFacts, ProcessLooks, user_name

from ...waiting import wait_until


def recorded(root: Path, pid: int, name: str, command: bytes | None, *, ticks: int = 100) -> None:
    """/proc/PID as proc(5) has it."""
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = ["0"] * 30
    numbers[10], numbers[11], numbers[18], numbers[20] = str(ticks), str(ticks), "5000", "256"
    (folder / "stat").write_text(f"{pid} ({name}) S {' '.join(numbers)}\n")
    if command is not None:
        (folder / "cmdline").write_bytes(command)
    (root / "proc/uptime").write_text("3650.00 100.0\n")


def test_facts_of_processes_as_proc_has_them(tmp_path: Path) -> None:
    recorded(tmp_path, 7, "python (1) x", b"python\0train.py\0--lr\0" + b"0.1\0")
    recorded(tmp_path, 8, "kworker", b"")
    recorded(tmp_path, 9, "hidden", None)
    looks = ProcessLooks(tmp_path)
    looks.look([7, 8, 9, 10])
    pages = 256 * os.sysconf("SC_PAGE_SIZE") / 2**20
    seconds = 3650.0 - 5000 / os.sysconf("SC_CLK_TCK")
    one = ProcessFacts(7, 5000.0, user_name(os.getuid()), None, seconds, pages, "python train.py --lr 0.1")
    assert looks.facts == {
        7: one,
        8: replace(one, pid=8, command="[kworker]"),
        9: replace(one, pid=9, command=None),
    }


def test_cpu_use_is_that_since_the_look_before(tmp_path: Path) -> None:
    recorded(tmp_path, 7, "a", b"a", ticks=100)
    looks = ProcessLooks(tmp_path)
    looks.look([7])
    recorded(tmp_path, 7, "a", b"a", ticks=10_000_000)
    recorded(tmp_path, 8, "b", b"b")
    looks.look([7, 8])  # the new one is looked at at once, and with it the others
    assert looks.facts[7].cpu_percent is not None
    assert looks.facts[7].cpu_percent > 100
    assert looks.facts[8].cpu_percent is None


def test_facts_of_this_process_are_those_of_psutil() -> None:
    looks = ProcessLooks()
    looks.look([os.getpid(), 4194305])
    [facts] = looks.facts.values()
    process = psutil.Process()
    assert (facts.pid, facts.user, facts.started) == (
        *(os.getpid(), process.username(), process_started(os.getpid())),
    )
    assert facts.command == " ".join(process.cmdline()).strip()[: len(facts.command or "")]
    assert abs(facts.memory_mb - process.memory_info().rss / 2**20) < 64
    assert user_name(4_000_000_000) == "4000000000"


# Its first thread ends, and another one goes on until standard input ends.
WITHOUT_LEADER = """
import ctypes, platform, sys, threading
threading.Thread(target=sys.stdin.read).start()
exit_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]  # SYS_exit of the kernel's unistd.h
ctypes.CDLL(None).syscall(exit_thread, 0)
"""


def test_a_process_of_which_threads_are_still_to_end_is_waited_for() -> None:
    """A killed process on a busy machine may be gone from /proc and not reapable yet."""
    with subprocess.Popen([sys.executable, "-c", WITHOUT_LEADER], stdin=subprocess.PIPE) as child:
        wait_until(lambda: process_started(child.pid) is None)
        assert reaped(child.pid) is None
        assert child.stdin is not None
        child.stdin.close()
        assert reaped(child.pid, wait=600) == 0
        with pytest.raises(ChildProcessError):
            reaped(child.pid)
