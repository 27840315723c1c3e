"""The lock that makes a process the only agent of a run on its host, and tells whether one has died.

While an agent works its process id stands in the file; one that ends in good order takes it out.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from monitoring.errors import RunBusyError
from monitoring.host import file_locks
from monitoring.journal.files import AGENT_LOCK, AGENT_LOG, OF_RANK_0, HostFiles
from monitoring.journal.run_json import read_run_json

# Seconds between looks whether another agent has ended.
LOOK_EVERY = 0.5


def is_followed(directory: Path) -> bool:
    """Whether an agent follows the run now."""
    return is_held(directory / AGENT_LOCK)


def is_coming(directory: Path) -> bool:
    """Whether an agent was started that has not come so far as to take its lock (`process.open_log`)."""
    return is_held(directory / AGENT_LOG)


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


def has_died(directory: Path) -> bool:
    """Whether the run's latest agent has died and no other follows the run."""
    lock = directory / AGENT_LOCK
    return _is_marked(lock) and not is_held(lock)


def death(how: str = "", *, log: str = AGENT_LOG) -> str:
    """Return the sentence of an alert about an agent that has died, be it with its job on a cluster."""
    if not how and int(os.environ.get("SLURM_RESTART_COUNT", "0")):
        return f"its agent was ended with its job, which has been started again; {log} has its last words"
    return f"its agent has died{f': {how}' if how else ''}; {log} has its last words"


def _is_marked(lock: Path) -> bool:
    try:
        return lock.stat().st_size > 0
    except OSError:
        return False


@contextlib.contextmanager
def only_agent(
    directory: Path, *, wait: float, stop: threading.Event, own: HostFiles = OF_RANK_0
) -> Iterator[bool]:
    """Hold the lock; RunBusyError if another agent does after `wait` seconds, or at `stop`.

    Yields whether the agent before has died.
    """
    read_run_json(directory)
    lock = directory / own.name(AGENT_LOCK)
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    file_locks.hold(fd)  # a child that a tracker forks must not keep it
    try:
        deadline = time.monotonic() + wait
        while not file_locks.try_lock(fd):
            if time.monotonic() >= deadline or stop.wait(LOOK_EVERY):
                raise RunBusyError(
                    f"{directory} is being followed by its agent",
                    hint="wait until the training has ended and its agent has delivered the rest",
                )
        # Its own mark is that of an agent which has become this one (agent.ending).
        died = _is_marked(lock) and os.pread(fd, 20, 0) != str(os.getpid()).encode()
        _note(fd, str(os.getpid()))
        with contextlib.ExitStack() as orderly:
            orderly.callback(_note, fd, "")
            try:
                yield died
            except Exception:  # a death as well; but not Ctrl-C on `make sync`
                # the mark stays in the file, by which the next agent knows
                orderly.pop_all()
                raise
    finally:
        file_locks.release(fd)


def _note(fd: int, text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
