"""The lock that makes a process the only agent of a run on its host."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from monitoring.errors import RunBusyError
from monitoring.journal.files import AGENT_LOCK, OF_RANK_0, HostFiles
from monitoring.journal.run_json import read_run_json

# Seconds between looks whether another agent has ended.
LOOK_EVERY = 0.5


def is_followed(directory: Path) -> bool:
    """Whether an agent follows the run now."""
    return is_held(directory / AGENT_LOCK)


def is_held(lock: Path) -> bool:
    """Whether an agent holds a lock; False where the file system shows no other host's locks."""
    try:
        fd = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def only_agent(
    directory: Path, *, wait: float, stop: threading.Event, own: HostFiles = OF_RANK_0
) -> Iterator[None]:
    """Hold the lock; RunBusyError if another agent does after `wait` seconds, or at `stop`."""
    read_run_json(directory)
    fd = os.open(directory / own.name(AGENT_LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    held_locks.add(fd)
    _watch_forks()
    try:
        deadline = time.monotonic() + wait
        while not _locked(fd):
            if time.monotonic() >= deadline or stop.wait(LOOK_EVERY):
                raise RunBusyError(
                    f"{directory} is being followed by its agent",
                    hint="wait until the training has ended and its agent has delivered the rest",
                )
        yield
    finally:
        held_locks.discard(fd)
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# Locks that a child which a tracker forks must let go of.
held_locks: set[int] = set()


@functools.cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_release_in_child)


def _release_in_child() -> None:
    for fd in held_locks:
        os.close(fd)
    held_locks.clear()
