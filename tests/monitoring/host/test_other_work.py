"""Other work on a machine: /proc as a kernel writes it, checked by hand, and a real process that is busy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from monitoring.host.other_work import MachineWork, WorkReading, other_work

# Uses a second of CPU time, whatever share of a core it gets.
BUSY = "import time\nwhile time.process_time() < 1: pass\nprint('done', flush=True)\ninput()"


class Proc:
    """A folder that stands for /; times are ticks of a hundredth of a second."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        self.processes: dict[int, tuple[int, int, int]] = {}

    def machine(self, *cpus: str) -> None:
        lines = [
            "cpu  9 9 9 9 9 9 9 9 9 9",
            *(f"cpu{n} {ticks} 0 0" for n, ticks in enumerate(cpus)),
            "ctxt 1",
        ]
        (self.root / "proc" / "stat").write_text("\n".join(lines) + "\n")

    def process(self, pid: int, parent: int, own: int, collected: int = 0, *, started: int = 50) -> None:
        folder = self.root / "proc" / str(pid)
        folder.mkdir(exist_ok=True)
        times = f"{own - own // 2} {own // 2} {collected} 0"
        (folder / "stat").write_text(
            f"{pid} (a ) (b) S {parent} 7 7 0 -1 0 0 0 0 0 {times} 20 0 1 0 {started} 0 0\n"
        )

    def end(self, pid: int) -> None:
        (self.root / "proc" / str(pid) / "stat").unlink()
        (self.root / "proc" / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_a_reading_splits_the_time_of_the_processors(proc: Proc) -> None:
    """Processor 1 alone counts: 400 ticks more, 100 of them idle or waiting, 120 of the process tree."""
    proc.machine("0 0 0 0 0 0 0 0", "100 10 40 500 50 5 5 10")
    proc.process(10, 1, 30)
    proc.process(11, 10, 20)
    proc.process(99, 1, 1000)
    work = MachineWork(10, processors=[1], root=proc.root)
    before = work.read()
    proc.machine("900 0 0 0 0 0 0 0", "250 60 90 580 70 10 10 50")
    proc.process(10, 1, 50)
    proc.process(11, 10, 60)
    proc.process(12, 11, 60)
    after = work.read()
    assert before is not None
    assert after is not None
    assert (before.processors, before.total, before.busy) == (1, 7.2, 1.7)
    assert (after.total - before.total, after.busy - before.busy, after.own - before.own) == pytest.approx(
        (4.0, 3.0, 1.2)
    )
    assert other_work(before, after) == pytest.approx((3.0 - 1.2) / 4.0)


def own_ticks(proc: Proc, work: MachineWork) -> int:
    reading = work.read()
    assert reading is not None
    return round(reading.own * os.sysconf("SC_CLK_TCK"))


def test_the_time_of_the_tree_counts_once_whatever_becomes_of_its_processes(proc: Proc) -> None:
    proc.machine("1 0 0 1 0 0 0 0")
    work = MachineWork(10, processors=[0], root=proc.root)
    proc.process(10, 1, 5)
    assert own_ticks(proc, work) == 5
    proc.process(11, 10, 30)  # a training
    proc.process(12, 11, 7)  # its agent, which will go on without it
    assert own_ticks(proc, work) == 42
    proc.end(11)
    proc.process(12, 1, 9)
    proc.process(10, 1, 6, collected=40)  # 30 of the 40 are known
    assert own_ticks(proc, work) == 42 + 2 + 1 + 10
    proc.end(12)  # nobody of the tree collects it, and what it did stays counted
    assert own_ticks(proc, work) == 55
    proc.process(13, 10, 8)  # came and went between two looks
    proc.end(13)
    proc.process(10, 1, 6, collected=48)
    assert own_ticks(proc, work) == 63
    proc.process(14, 10, 20)
    assert own_ticks(proc, work) == 83
    proc.end(14)
    proc.process(14, 1, 500, started=60)  # another process with its number
    proc.process(10, 1, 6, collected=68)
    assert own_ticks(proc, work) == 83


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        (WorkReading(0, 2, 0, 0, 0), WorkReading(10, 2, 20, 15, 5), 0.5),
        (WorkReading(0, 2, 0, 0, 0), WorkReading(10, 2, 20, 5, 5.2), 0.0),  # ticks are rounded
        (WorkReading(0, 2, 0, 0, 0), WorkReading(0.2, 2, 0.4, 0.4, 0), None),  # too short
        (WorkReading(0, 2, 0, 0, 0), WorkReading(10, 2, 2, 1, 5), None),  # a /proc that only pretends
        (WorkReading(0, 2, 0, 0, 0), WorkReading(10, 3, 20, 15, 5), None),
        (None, WorkReading(10, 2, 20, 15, 5), None),
        (WorkReading(10, 2, 20, 15, 5), None, None),
    ],
)
def test_the_share_of_others(
    before: WorkReading | None, after: WorkReading | None, share: float | None
) -> None:
    assert other_work(before, after) == share


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"stat": "cpu0 1 2\n"},
        {"stat": ""},
        {"stat": "cpu0 a b c d e f g h\n"},
        {"stat": "cpu0 0 0 0 0 0 0 0 0\n"},
    ],
)
def test_what_the_system_does_not_say_is_not_measured(proc: Proc, files: Mapping[str, str]) -> None:
    proc.process(10, 1, 5)
    for name, text in files.items():
        (proc.root / "proc" / name).write_text(text)
    assert MachineWork(10, processors=[0, 1], root=proc.root).read() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
@pytest.mark.parametrize("ours", [True, False])
def test_a_busy_process_is_ours_or_other_work(ours: bool) -> None:
    """A child's second of CPU time counts as ours or as other work; other load can only add to the latter."""
    command = [sys.executable, "-c", "print('idle', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"idle\n"  # to start took it time
        work = MachineWork(os.getpid() if ours else stranger.pid)
        before, clock = work.read(), time.monotonic()
        command = [sys.executable, "-c", BUSY]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
            assert busy.stdout is not None
            assert busy.stdout.readline() == b"done\n"
            while time.monotonic() - clock < 0.6:  # so that a machine of two processors has a second
                time.sleep(0.01)
            after = work.read()
            busy.communicate(b"\n")
        stranger.communicate(b"\n")
    assert before is not None
    assert after is not None
    share = other_work(before, after)
    assert share is not None
    if ours:
        assert after.own - before.own >= 0.98
    else:
        assert after.own - before.own < 0.1
        # a tenth less, for the kernel's looks at the processors
        assert share >= 0.9 / (after.total - before.total)
