"""Locks on files, held against another open file of the same name, which is all that flock(2) looks at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from monitoring.host import file_locks

Open = Callable[[], int]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens one file again and again; what is still open is closed at the end."""
    fds: list[int] = []

    def again() -> int:
        fds.append(os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
        return fds[-1]

    yield again
    for fd in fds:
        with suppress(OSError):
            os.close(fd)


def test_one_holder_at_a_time(opened: Open) -> None:
    first, second, third = opened(), opened(), opened()
    assert not file_locks.is_locked(third)
    os.close(third)
    assert file_locks.try_lock(first)
    assert not file_locks.try_lock(second)
    assert file_locks.is_locked(second)
    os.close(first)
    assert file_locks.try_lock(second)


def test_a_held_lock_ends_with_its_process_though_a_child_lives_on(opened: Open) -> None:
    mine, another = opened(), opened()
    assert file_locks.try_lock(mine)
    file_locks.hold(mine)
    assert mine in file_locks.held()
    child_says, child = os.pipe()
    parent_says, parent = os.pipe()
    pid = os.fork()
    if not pid:  # the child: it lives until the parent has looked
        with suppress(BaseException):
            os.write(child, b"open" if Path(f"/proc/self/fd/{mine}").exists() else b"closed")
            os.read(parent_says, 1)
        os._exit(0)
    try:
        assert os.read(child_says, 6) == b"closed"
        assert file_locks.is_locked(another), "the parent has it still"
        file_locks.release(mine)
        assert mine not in file_locks.held()
        assert file_locks.try_lock(another), "the child does not keep it"
    finally:
        os.write(parent, b".")
        os.waitpid(pid, 0)
        for fd in (child_says, child, parent_says, parent):
            os.close(fd)


def test_a_child_that_did_not_hold_keeps_the_lock(opened: Open) -> None:
    """A forked child keeps the lock by its open file, which is why `hold` exists."""
    mine, another = opened(), opened()
    assert file_locks.try_lock(mine)
    parent_says, parent = os.pipe()
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            os.read(parent_says, 1)
        os._exit(0)
    try:
        os.close(mine)
        assert not file_locks.try_lock(another)
    finally:
        os.write(parent, b".")
        os.waitpid(pid, 0)
        os.close(parent_says)
        os.close(parent)
    assert file_locks.try_lock(another)
