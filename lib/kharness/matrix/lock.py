"""One runner a directory: a lock that the kernel lets go when its holder is gone, and who that is."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kharness.matrix.errors import MatrixError

RUNNER_LOCK = ".runner.lock"

TRIES = 5
PAUSE = 0.02


@dataclass(frozen=True)
class Holder:
    """A runner at work."""

    pid: int
    host: str
    started: float
    """UTC epoch seconds."""

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
            _lock(self._fd)
        except OSError as error:
            held_by = _read(self._fd)
            os.close(self._fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise _unusable(path, error) from error
            raise MatrixError(
                f"{self._directory} is being run by {held_by or 'another process'}",
                hint="`make status` shows how far it is; stop it first, or wait for its end",
            ) from error
        holder = Holder(os.getpid(), socket.gethostname(), time.time())
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(asdict(holder)).encode() + b"\n", 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The file stays: were it deleted, two could hold a lock on two files of one name.
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def holder(directory: Path) -> Holder | None:
    """Who runs what is in the directory now; None if nobody does."""
    try:
        fd = os.open(directory / RUNNER_LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _lock(fd: int) -> None:
    # `holder` takes it for a moment, too.
    for _ in range(TRIES - 1):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(PAUSE)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read(fd: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(fd, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None


def _unusable(path: Path, error: OSError) -> MatrixError:
    return MatrixError(
        f"{path} cannot be locked: {(error.strerror or str(error)).lower()}",
        hint="set RESULTS_DIR to a folder on a file system with locks that you can write to",
    )
