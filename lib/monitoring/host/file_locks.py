"""Locks on open files: one holder at a time, and the kernel lets go when its processes are gone (flock(2)).

A lock belongs to the open file, which a forked child shares: `hold` is for those that must end with this
process, whatever it has forked. OSError where the file system has no locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Collection

from monitoring.host.process import in_children

# Seconds between looks at a lock that is waited for.
LOOK_EVERY = 0.01


def try_lock(fd: int, *, seconds: float = 0.0) -> bool:
    """Lock the file; False if another open file has it locked, and keeps it so long."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # the second where a network's file system answers so
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_EVERY)
        else:
            return True


def is_locked(fd: int) -> bool:
    """Whether the file is locked, as far as this host sees it; for a moment no one else can lock it."""
    try:
        # shared: two that ask at once do not take each other for a holder; the caller's close lets it go
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def unlock(fd: int) -> None:
    """Let go of the lock that this open file, or one that it was inherited from, holds."""
    with contextlib.suppress(OSError):  # no file that can be locked
        fcntl.flock(fd, fcntl.LOCK_UN)


def hold(fd: int) -> None:
    """Close the file in children that this process forks."""
    _held.add(fd)
    in_children(_release_in_child)


def release(fd: int) -> None:
    """Close a file that `hold` got, which lets go of its lock."""
    _held.discard(fd)
    os.close(fd)


def held() -> Collection[int]:
    """Return the files that `hold` got: for a child that must keep the locks after all."""
    return tuple(_held)


_held: set[int] = set()


def _release_in_child() -> None:
    for fd in _held:
        os.close(fd)
    _held.clear()
