"""Files of metrics that a monitor keeps next to a training: one JSON object per line, one file per start."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

from monitoring.errors import RunDirectoryError, unwritable
from monitoring.journal.encoding.json_form import strict_line
from monitoring.journal.line_file import Backlog, LineFile
from monitoring.journal.records import Record
from monitoring.journal.turns import Turns


class MetricsLog:
    """Appends lines to one file, each at once; what a full disk does not take waits for the next line.

    Any thread may append, and so may signal handlers (see turns).
    """

    def __init__(self, directory: Path, prefix: str, stamp: str) -> None:
        """Begin DIRECTORY/PREFIX_STAMP.jsonl, with a number appended where another process was as quick.

        RunDirectoryError if it cannot be made.
        """
        for number in itertools.count(1):
            suffix = "" if number == 1 else f"_{number}"
            self.path = directory / f"{prefix}_{stamp}{suffix}.jsonl"
            try:
                directory.mkdir(parents=True, exist_ok=True)
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                break
            except FileExistsError as error:
                if directory.exists() and not directory.is_dir():
                    raise RunDirectoryError(f"{directory} is not a directory") from error
            except OSError as error:
                raise unwritable(self.path, error) from error
        self._file = LineFile(fd)
        self._waiting = Backlog()
        self._turns = Turns(self._take)
        self.lost = 0
        """Lines that were given up, because more than line_file.BACKLOG_BYTES waited."""
        self.failure: OSError | None = None
        """Why the last line is not in the file, None if it is."""

    def append(self, record: Record) -> None:
        """Write one line; never raises. NaN and infinities are null and named in `nonfinite`."""
        self._turns.add(record)

    def close(self) -> None:
        """Close the file, after a last try to write what waits; a second call does nothing."""
        self._turns.add(None)

    def _take(self, record: Record | None) -> None:
        if self._file.fd == -1:
            return
        if record is not None:
            self.lost += self._waiting.add(strict_line(record))
        self._write_waiting()
        if record is None:
            os.close(self._file.fd)
            self._file = LineFile(-1)

    def _write_waiting(self) -> None:
        try:
            if self._file.is_doubtful and self._file.repair() == self._waiting.first():
                self._waiting.drop_first()  # it was written before an exception came in between
            self.failure = None
        except OSError as error:
            self.failure = error
        while self._waiting.count and self.failure is None:
            self.failure = self._file.write(self._waiting.first())
            if self.failure is None:
                self._waiting.drop_first()


def file_stamp(seconds: float) -> str:
    """UTC epoch seconds as YYYYMMDD_HHMMSS, in UTC as everything in the files is."""
    return time.strftime("%Y%m%d_%H%M%S", time.gmtime(seconds))
