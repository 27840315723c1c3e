"""Files of metrics that a monitor keeps beside a training: one JSON object a line, one file a start."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from pathlib import Path

import orjson

from monitoring.errors import RunDirectoryError, unwritable
from monitoring.records import JSON_LINE, Record, mark_nonfinite, plain

# Lines that are kept in memory while a disk takes none; the oldest are given up first.
MOST_WAITING = 10_000


class MetricsLog:
    """Appends lines to one file, each at once; what a full disk does not take waits for the next line."""

    def __init__(self, directory: Path, prefix: str, stamp: str) -> None:
        """Begin DIRECTORY/PREFIX_STAMP.jsonl, with a number behind it where another process was as quick.

        RunDirectoryError if it cannot be made.
        """
        for number in itertools.count(1):
            suffix = "" if number == 1 else f"_{number}"
            self.path = directory / f"{prefix}_{stamp}{suffix}.jsonl"
            try:
                directory.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                break
            except FileExistsError as error:
                if directory.exists() and not directory.is_dir():
                    raise RunDirectoryError(f"{directory} is not a directory") from error
            except OSError as error:
                raise unwritable(self.path, error) from error
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._cut = 0  # bytes of the first waiting line that are in the file
        self.failure: OSError | None = None
        """Why the last line is not in the file, None if it is."""

    def append(self, record: Record) -> None:
        """Write one line; never raises. NaN and infinities are null and named in `nonfinite`."""
        mark_nonfinite(record)
        try:
            line = orjson.dumps(record, option=JSON_LINE)
        except TypeError:
            line = orjson.dumps(plain(record), option=JSON_LINE)
        if len(self._waiting) == MOST_WAITING:
            self._waiting.popleft()
            self._cut = 0
        self._waiting.append(line)
        self._write_waiting()

    def close(self) -> None:
        """Close the file, after a last try to write what waits; a second call does nothing."""
        if self._fd != -1:
            self._write_waiting()
            os.close(self._fd)
            self._fd = -1

    def _write_waiting(self) -> None:
        if self._fd == -1:
            return
        try:
            while self._waiting:
                self._cut += os.write(self._fd, self._waiting[0][self._cut :])
                if self._cut == len(self._waiting[0]):
                    self._waiting.popleft()
                    self._cut = 0
            self.failure = None
        except OSError as error:
            self.failure = error


def file_stamp(seconds: float) -> str:
    """UTC epoch seconds as YYYYMMDD_HHMMSS, in UTC as everything in the files is."""
    return time.strftime("%Y%m%d_%H%M%S", time.gmtime(seconds))
