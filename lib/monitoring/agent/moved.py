"""Restarts an agent whose run directory was renamed, at the new place.

The trainer has its files open and goes on to write them; followers ask their sinks how far they got, so that
an agent may begin again at any moment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# The kernel appends this to the name of a directory that was removed (proc(5), /proc/pid/fd).
_DELETED = " (deleted)"


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
