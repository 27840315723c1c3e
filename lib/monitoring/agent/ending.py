"""Tells an agent when to end: by a signal, after its attempt, or when the trainer is gone.

Where its run directory was renamed it begins again at the new place: the trainer has its files open and goes
on to write them, and followers ask their sinks how far they got, so that an agent may begin at any moment.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitoring.host.name import host_name
from monitoring.host.process import is_alive
from monitoring.host.stop_signals import set_by
from monitoring.journal.records import attempt_of, last_record

# The kernel appends this to the name of a directory that was removed (proc(5), /proc/pid/fd).
_DELETED = " (deleted)"


def has_ended(journal: Path, attempt: Mapping[str, Any]) -> bool:
    """Whether a journal ends with the end of this attempt, or holds a later one."""
    last = last_record(journal) or {}
    newest, ours = attempt_of(last), attempt["attempt"]
    return newest > ours or (newest == ours and last.get("event") == "end")


def is_running(attempt: Mapping[str, Any]) -> bool:
    """Whether the process of this attempt is still alive, as far as this host can tell."""
    return attempt["host"] == host_name() and is_alive(attempt)


def set_signals(stop: threading.Event, ending: threading.Event) -> None:
    """Ignore SIGINT and SIGHUP, which are the trainer's; SIGTERM ends the agent once all is delivered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    set_by((signal.SIGTERM,), stop, ending)


class OpenDirectory:
    """A directory held open, so that it can be found after a rename."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def moved_to(self) -> Path | None:
        """Return its present path if that has changed, else None; None also where it cannot be found out."""
        try:
            if os.path.samestat(os.fstat(self._fd), os.stat(self._directory)):
                return None
        except OSError:
            pass
        try:
            path = os.readlink(f"/proc/self/fd/{self._fd}")
        except OSError:  # off Linux
            return None
        return None if path.endswith(_DELETED) or not os.path.isdir(path) else Path(path)


def begin_again(directory: Path) -> None:
    """Replace this process by an agent of that directory; its open files and locks close (PEP 446)."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", "monitoring.agent", str(directory)])
