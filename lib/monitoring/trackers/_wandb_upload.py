"""Uploads a W&B transaction log by W&B's own `sync`, as a process.

The process only reads the log. It may survive the agent that started it; the next agent ends it and starts
another, because W&B marks a log as uploaded when such a process ends, even if more was written during that.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

from monitoring.errors import MonitoringError
from monitoring.host.backoff import Backoff
from monitoring.host.file_locks import try_lock

UPLOAD_LOCK = ".upload.lock"
UPLOAD_LOG = "sync.log"

# Seconds before an upload that ended by itself is tried again.
FIRST_DELAY = 10.0
LONGEST_DELAY = 300.0

# Writes its process number into the lock, which it holds, and becomes wandb.
UPLOAD = """
import os, sys
os.pwrite(int(sys.argv[1]), str(os.getpid()).encode(), 0)
os.execv(sys.executable, [sys.executable, "-m", "wandb", *sys.argv[2:]])
"""


def typed_wandb(command: str, path: Path | None = None, beyond: str = "") -> str:
    """Return `wandb COMMAND PATH` as one can type it here: the W&B of this Python, and paths from here on.

    What follows the path, as `/offline-run-*` does, is for the shell.
    """
    program = Path(sys.executable).with_name("wandb")
    found = shutil.which("wandb")
    is_other = program.exists() and not (found and os.path.samefile(found, program))
    shown = shlex.quote(from_here(program)) if is_other else "wandb"
    return f"{shown} {command}" + (f" {shlex.quote(from_here(path))}{beyond}" if path else "")


def from_here(path: Path) -> str:
    """Return the path relative to the current directory where it lies below it."""
    try:
        here = Path.cwd()
    except OSError:  # it was deleted
        return str(path)
    is_below = here != here.parent and path.is_relative_to(here)
    return str(path.relative_to(here)) if is_below else str(path)


class UploadUnfinished(MonitoringError):
    """The run has ended, but W&B does not have all of it yet."""


def unmark(log: Path) -> None:
    """Take back W&B's mark that a log is uploaded, because there is more in it now."""
    _mark(log).unlink(missing_ok=True)


def is_uploaded(log: Path) -> bool:
    """Whether W&B has marked the log since it was last written."""
    mark = _mark(log)
    return mark.exists() and mark.stat().st_mtime_ns >= log.stat().st_mtime_ns


def uploaded_to(log: Path) -> str | None:
    """Return the address of an uploaded run, None if it is not uploaded."""
    if not is_uploaded(log):
        return None
    said = log.parent.with_name(UPLOAD_LOG)
    found = re.findall(r"View run .* at (\S+)", said.read_text()) if said.exists() else []
    return str(found[-1]) if found else f"uploaded: {log.parent}"


class Uploader:
    """Keeps one `wandb beta sync --live` running on a log while it grows."""

    def __init__(self, directory: Path, log: Path, *, patience: float) -> None:
        """`patience` is how many seconds the end of a run waits for its upload."""
        self._patience = patience
        self._directory = directory
        self._log = log
        self._lock = directory / "wandb" / UPLOAD_LOCK
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff(first=FIRST_DELAY, longest=LONGEST_DELAY)
        self._not_before = 0.0

    def keep_alive(self) -> None:
        """Start the upload if it is not running, after the delays above; never waits for it."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
            self._not_before = time.monotonic() + self._backoff.failed()
        if self._process is None and time.monotonic() >= self._not_before:
            self._process = self._start("beta", "sync", "--live")

    def finish(self, *, ended: bool) -> None:
        """See the upload to its end if the run has ended; else let W&B have what there is.

        UploadUnfinished, with the upload stopped, if that of an ended run takes too long.
        """
        if not ended:
            self._process = self._start("sync")
            return
        deadline = time.monotonic() + self._patience
        while not (is_uploaded(self._log) and (self._process is None or self._process.poll() is not None)):
            self.keep_alive()
            if time.monotonic() > deadline:
                os.close(self._stop())
                reason = self._lock.with_name(UPLOAD_LOG)
                raise UploadUnfinished(
                    f"{self._log.parent} is not uploaded after {self._patience:.0f} s; {reason} may say why",
                    hint=typed_wandb("sync", self._log.parent),
                )
            time.sleep(0.1)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        """Return the process, which alone uploads this log; the lock is its own as long as it lives."""
        lock = self._stop()
        os.ftruncate(lock, 0)  # whose number it holds is gone
        unmark(self._log)
        try:
            with open(self._lock.with_name(UPLOAD_LOG), "ab") as output:
                return subprocess.Popen(
                    [sys.executable, "-c", UPLOAD, str(lock), *command, str(self._log.parent)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, "WANDB_DIR": str(self._directory), "WANDB_MODE": "online"},
                    pass_fds=[lock],
                    start_new_session=True,
                )
        finally:
            os.close(lock)

    def _stop(self) -> int:
        """End the process that uploads this log, also another agent's, and W&B's service below it.

        Returns a descriptor of the lock, which is now ours.
        """
        while (lock := self._take_lock()) is None:
            with contextlib.suppress(psutil.NoSuchProcess, ValueError):
                process = psutil.Process(int(self._lock.read_text()))
                family = [*process.children(recursive=True), process]
                for member in family:
                    member.kill()
                psutil.wait_procs(family, timeout=1)
            time.sleep(0.02)
        return lock

    def _take_lock(self) -> int | None:
        """Return a descriptor of the lock, None while an upload holds it."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        if try_lock(lock):
            return lock
        os.close(lock)
        return None


def _mark(log: Path) -> Path:
    return log.with_name(f"{log.name}.synced")
