"""One runner per directory: a lock that the kernel releases when its holder dies, and who holds it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from kharness.config.make.typed import typed_target
from kharness.runs.errors import MatrixError
from kharness.runs.files import RUNNER_LOCK
from monitoring.errors import refusal
from monitoring.host import file_locks
from monitoring.host.name import host_name
from monitoring.host.process import process_started

# Seconds for which `holder` may have the lock: it takes it for a moment, too.
PATIENCE = 0.08


@dataclass(frozen=True)
class LockHolder:
    """A running runner."""

    pid: int
    host: str
    started: float
    """UTC epoch seconds."""
    process_started: float | None = None
    """Start time in the system's units; with the pid it identifies one process of the host."""

    @property
    def is_gone(self) -> bool:
        """Whether that process has ended, as far as it can be seen from here."""
        if self.host != host_name():
            return False
        now = process_started(self.pid)
        return now is None or (self.process_started is not None and now != self.process_started)

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


class RunnerLock:
    """Held while a process runs what is in a directory; MatrixError if another one does."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> Self:
        path = self._directory / RUNNER_LOCK
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            is_ours = file_locks.try_lock(self._fd, seconds=PATIENCE)
        except OSError as error:
            os.close(self._fd)
            raise _unusable(path, error) from error
        if not is_ours:
            held_by = _read(self._fd)
            os.close(self._fd)
            raise _held(self._directory, held_by)
        # A forked child must not hold on to it: only on Linux the kernel kills it with us.
        file_locks.hold(self._fd)
        pid = os.getpid()
        holder = LockHolder(pid, host_name(), time.time(), process_started(pid))
        os.ftruncate(self._fd, 0)
        with contextlib.suppress(OSError):  # a full disk: the lock is held all the same
            os.pwrite(self._fd, json.dumps(asdict(holder)).encode() + b"\n", 0)
        return self

    def __exit__(self, *_: object) -> None:
        # The file stays: were it deleted, two could hold a lock on two files of one name.
        os.ftruncate(self._fd, 0)
        file_locks.release(self._fd)


def holder(directory: Path) -> LockHolder | None:
    """Return who runs the directory now; None if no process does."""
    try:
        fd = os.open(directory / RUNNER_LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = _read(fd) if file_locks.is_locked(fd) else None
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if found is None or found.is_gone else found


def _read(fd: int) -> LockHolder | None:
    try:
        return LockHolder(**json.loads(os.pread(fd, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None


def _held(directory: Path, by: LockHolder | None) -> MatrixError:
    if by is not None and by.is_gone:
        return MatrixError(
            f"{directory} is still locked, though its runner, pid {by.pid}, is gone",
            hint="wait for the end of what that has started, then try again",
        )
    return MatrixError(
        f"{directory} is being run by {by or 'another process'}",
        hint=f"`{typed_target('status')}` shows how far it is; stop it first, or wait for its end",
    )


def _unusable(path: Path, error: OSError) -> MatrixError:
    return MatrixError(
        f"{path} cannot be locked: {refusal(error)}",
        hint="set RESULTS_DIR to a folder on a file system with locks that you can write to",
    )
