"""A process that the kernel kills for want of memory is told from one that somebody killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kharness.matrix.launchers.local import OomKills

RUNNER = """
import os, sys, time
from pathlib import Path
from kharness.runs.launch import Launch, Slot
from kharness.matrix.launchers import open_launcher

Path(sys.argv[2], "cgroup.procs").write_text(str(os.getpid()))
root = Path(sys.argv[1])
launcher = open_launcher("local", {"LAUNCHER_LOCAL_FORK_SERVER": False}, print)
for what in ("memory", "kill"):
    job = launcher.submit(Launch("run", root / "run", root, "model", {}, (what,)), Slot())
    while (end := launcher.poll(job)) is None:
        time.sleep(0.01)
    print(end.signal, end.cause, end.reason)
"""
CELL = """
import os, sys
if "kill" in sys.argv:
    os.kill(os.getpid(), 9)
bytearray(400_000_000)
"""


@pytest.fixture
def small_group(tmp_path: Path) -> Iterator[Path]:
    """A memory cgroup of 100 MB below ours."""
    group = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted_at, kind = line.split()[4], line.partition(" - ")[2].split()[0]
        limit = {"cgroup": "memory.limit_in_bytes", "cgroup2": "memory.max"}.get(kind, "")
        candidate = Path(mounted_at) / f"kharness-test-{os.getpid()}"
        if not limit:
            continue
        with contextlib.suppress(OSError):
            candidate.mkdir()
            group = candidate
            (group / limit).write_text("100000000")
            break
        if group:
            group.rmdir()
            group = None
    if group is None:
        pytest.skip("memory cgroups cannot be made here")
    yield group
    group.rmdir()


def test_a_real_kernel_kill_is_told_from_a_plain_one(tmp_path: Path, small_group: Path) -> None:
    for name in ("run", "model"):
        (tmp_path / name).mkdir()
    (tmp_path / "model" / "train.py").write_text(CELL)
    command = [sys.executable, "-c", RUNNER, str(tmp_path), str(small_group)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    counter = next(path for path in small_group.glob("memory.*") if path.name in COUNTERS)
    assert told == [
        f"9 out_of_memory killed by the kernel for want of memory (oom_kill in {counter} rose to 1)",
        "9 None None",
    ]


COUNTERS = ("memory.events", "memory.oom_control")

MOUNTS = {
    "version 2": (
        "0::/user/a",
        "30 1 0:1 / /cg rw - cgroup2 cgroup2 rw,nsdelegate",
        "cg/user/a/memory.events",
    ),
    "version 1": (
        "5:memory:/docker/x\n0::/",
        "30 1 0:1 /docker/x /cg/memory ro shared:3 - cgroup cgroup rw,memory",
        "cg/memory/memory.oom_control",
    ),
    "the machine": ("", "30 1 0:1 / / rw - ext4 /dev/vda rw", "proc/vmstat"),
}


@pytest.mark.parametrize("kind", MOUNTS)
def test_the_counter_is_found_and_read(tmp_path: Path, kind: str) -> None:
    groups, mounts, counter = MOUNTS[kind]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    file = tmp_path / counter
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("low 0\noom 4\noom_kill 2\noom_group_kill 0\n")
    kills = OomKills(tmp_path)
    assert kills.count() == 2
    assert kills.reason_since(2) == ""
    file.write_text("oom_kill 3\n")
    assert kills.reason_since(2) == f"killed by the kernel for want of memory (oom_kill in {file} rose to 3)"


def test_where_nothing_counts_nothing_is_said(tmp_path: Path) -> None:
    kills = OomKills(tmp_path)
    assert (kills.count(), kills.reason_since(None)) == (None, "")
