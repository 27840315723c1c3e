"""The lock that makes a process the only agent of a run on its host."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from monitoring.errors import RunBusyError
from monitoring.host import file_locks
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
        return file_locks.is_locked(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def only_agent(
    directory: Path, *, wait: float, stop: threading.Event, own: HostFiles = OF_RANK_0
) -> Iterator[None]:
    """Hold the lock; RunBusyError if another agent does after `wait` seconds, or at `stop`."""
    read_run_json(directory)
    fd = os.open(directory / own.name(AGENT_LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    file_locks.hold(fd)  # a child that a tracker forks must not keep it
    try:
        deadline = time.monotonic() + wait
        while not file_locks.try_lock(fd):
            if time.monotonic() >= deadline or stop.wait(LOOK_EVERY):
                raise RunBusyError(
                    f"{directory} is being followed by its agent",
                    hint="wait until the training has ended and its agent has delivered the rest",
                )
        yield
    finally:
        file_locks.release(fd)
