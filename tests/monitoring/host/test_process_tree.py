"""Which processes were started by some, by real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from monitoring.host.process import ProcessTree, process_started

# Starts one that goes on, says its id, and ends with standard input.
PARENT = """
import subprocess, sys
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def family() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A child of this process, and the id of its child."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        yield parent, child
    finally:
        parent.communicate()
        os.kill(child, 9)


def tree_of(pid: int) -> ProcessTree:
    tree = ProcessTree()
    started = process_started(pid)
    assert started is not None
    tree.add(pid, started)
    return tree


def test_tree_has_what_its_processes_started() -> None:
    with family() as (parent, child):
        own, of_parent = tree_of(os.getpid()), tree_of(parent.pid)
        pids = (os.getpid(), parent.pid, child, os.getppid(), 1)
        assert [own.has(pid) for pid in pids] == [True, True, True, False, False]
        assert [of_parent.has(pid) for pid in pids] == [False, True, True, False, False]


def test_process_stays_a_member_when_its_parent_has_ended() -> None:
    with family() as (parent, child):
        tree = tree_of(parent.pid)
        assert tree.has(child)
        parent.communicate()
        assert tree.has(child)
        assert not tree_of(os.getpid()).has(child)  # nobody had seen it before


def test_process_is_found_again_when_its_root_becomes_known() -> None:
    with family() as (parent, child):
        tree = tree_of(child)
        assert not tree.has(parent.pid)
        started = process_started(parent.pid)
        assert started is not None
        tree.add(parent.pid, started)
        assert tree.has(parent.pid)


def test_number_that_another_process_has_now_is_not_a_member() -> None:
    tree = ProcessTree()
    tree.add(os.getpid(), 1.0)  # the one that had it ended long ago
    assert not tree.has(os.getpid())
