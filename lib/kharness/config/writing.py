"""Write several files so that one that fails does not prevent the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kharness.config.errors import KharnessError
from kharness.config.foreign_text import on_one_line
from monitoring.errors import EXIT_DISK_FULL, UserError, is_full

Made = TypeVar("Made")


def guarded(
    name: str,
    make: Callable[[], Made],
    instead: Made,
    warn: Callable[[str], object],
    *,
    raises: type[Exception] | tuple[()] = (),
) -> Made:
    """Return what `make` does; if it fails `instead`, and `warn` gets a line with name and exception.

    Errors of the type `raises` are the caller's.
    """
    try:
        return make()
    except raises:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - costs a warning, and nothing else
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        warn(on_one_line(f"{name}: {reason}"))
        return instead


class NotWritten(KharnessError):
    """Files that could not be written; exit code 74 if a disk is full."""


class Writing:
    """Calls what writes files, and keeps what went wrong for the end."""

    def __init__(self) -> None:
        self.written: list[Path] = []
        self._failed: list[OSError] = []
        self._left_out: list[str] = []

    def write(self, write: Callable[[], Sequence[Path]]) -> bool:
        """Whether it could write all of its files; those are in `written`."""
        try:
            self.written += write()
        except OSError as error:
            self._failed.append(error)
            return False
        return True

    def leave_out(self, what: str) -> None:
        """Name what is not even tried, for an earlier one has failed."""
        self._left_out.append(what)

    def check(self, *, again: str) -> None:
        """NotWritten, which names every file that is missing; `again` is what to type once there is room."""
        if not self._failed:
            return
        reasons = [f"{_shown(error)}: {(error.strerror or str(error)).lower()}" for error in self._failed]
        reasons += self._left_out
        full = any(map(is_full, self._failed))
        message = reasons[0]
        if len(reasons) > 1:
            message = "\n  ".join(["the report is not complete", *reasons])
        remedy = "free some space" if full else "make it writable"
        code = EXIT_DISK_FULL if full else None
        raise NotWritten(message, hint=f"{remedy}, then: {again}", exit_code=code)


def _shown(error: OSError) -> str:
    """The file, as one types it here."""
    path = Path(os.fsdecode(error.filename)) if error.filename else Path("a file")
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
