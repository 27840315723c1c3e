"""The upload of a W&B transaction log: W&B's own `sync` as a process.

The process only reads the log. It survives the agent, and while it lives no second one is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from monitoring.errors import MonitoringError

UPLOAD_LOCK = ".upload.lock"
UPLOAD_LOG = "sync.log"

# Seconds before an upload that ended by itself is tried again: doubled each time.
FIRST_DELAY = 10.0
LONGEST_DELAY = 300.0

# Seconds that an upload gets to end when it is told to.
STOP_SECONDS = 5.0


class UploadUnfinished(MonitoringError):
    """The run has ended and W&B does not have all of it yet."""


def unmark(log: Path) -> None:
    """Take back W&B's mark that a log is uploaded, because there is more in it now."""
    _mark(log).unlink(missing_ok=True)


def uploaded_to(log: Path) -> str | None:
    """The address of an uploaded run, None if it is not uploaded."""
    if not _mark(log).exists():
        return None
    said = log.parent.with_name(UPLOAD_LOG)
    found = re.findall(r"View run .* at (\S+)", said.read_text()) if said.exists() else []
    return str(found[-1]) if found else f"uploaded: {log.parent}"


class Uploader:
    """Keeps one `wandb beta sync --live` at work on a log while it grows."""

    def __init__(self, directory: Path, log: Path, *, patience: float) -> None:
        """`patience` is how many seconds the end of a run waits for its upload."""
        self._patience = patience
        self._directory = directory
        self._log = log
        self._lock = directory / "wandb" / UPLOAD_LOCK
        self._process: subprocess.Popen[bytes] | None = None
        self._delay = FIRST_DELAY
        self._not_before = 0.0

    def keep_alive(self) -> None:
        """Start the upload if none is at work, after the delays above; never waits for it."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
            self._not_before = time.monotonic() + self._delay
            self._delay = min(2 * self._delay, LONGEST_DELAY)
        if self._process is None and time.monotonic() >= self._not_before:
            self._process = self._start("beta", "sync", "--live")

    def finish(self, *, ended: bool) -> None:
        """See the upload to its end if the run has ended; else let W&B have what there is.

        UploadUnfinished, with the upload stopped, if that of an ended run takes too long.
        """
        if not ended:
            self._stop()
            self._process = self._start("sync")
            return
        deadline = time.monotonic() + self._patience
        while not _mark(self._log).exists():
            self.keep_alive()
            if time.monotonic() > deadline:
                self._stop()
                reason = self._lock.with_name(UPLOAD_LOG)
                raise UploadUnfinished(
                    f"{self._log.parent} is not uploaded after {self._patience:.0f} s; {reason} may say why",
                    hint=f"wandb sync {shlex.quote(str(self._log.parent))}",
                )
            time.sleep(0.2)

    def _stop(self) -> None:
        """End the process that uploads this log, also one that an agent before us started."""
        deadline = time.monotonic() + STOP_SECONDS
        while (lock := self._take_lock()) is None and time.monotonic() < deadline:
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(self._lock.read_text()), signal.SIGTERM)
            time.sleep(0.05)
        if self._process is not None:
            self._process.poll()
        if lock is not None:
            os.close(lock)

    def _start(self, *command: str) -> subprocess.Popen[bytes] | None:
        """The process, None while another one uploads this log."""
        lock = self._take_lock()
        if lock is None:
            return None
        os.ftruncate(lock, 0)  # whose number stands there is gone
        with contextlib.closing(open(self._lock.with_name(UPLOAD_LOG), "ab")) as output:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "wandb", *command, str(self._log.parent)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, "WANDB_DIR": str(self._directory), "WANDB_MODE": "online"},
                    pass_fds=[lock],
                    start_new_session=True,
                )
                self._lock.write_text(str(process.pid))
                return process
            finally:
                os.close(lock)

    def _take_lock(self) -> int | None:
        """A descriptor of the lock, None while an upload holds it."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock


def _mark(log: Path) -> Path:
    return log.with_name(f"{log.name}.synced")
