"""Files of metrics that a monitor keeps next to a training: one JSON object per line, one file per start.

A full file moves aside, as that of a rotating_journal does, by the numbers of its lines. The training's
process only starts another one, at low priority, which compresses what is full and ends:

    python -P -m monitoring.gpu_monitor.metrics_log PATH FILE_BYTES KEEP

A kill of that leaves each file complete, and the next one to start does the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from pathlib import Path

from monitoring.errors import RunDirectoryError, unwritable
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.sample import MIB
from monitoring.host.process import is_collected, spawned
from monitoring.journal.encoding.archive import move_aside
from monitoring.journal.encoding.archiver import Archiver, Thinning
from monitoring.journal.encoding.json_form import strict_line
from monitoring.journal.line_file import KeptLines
from monitoring.journal.records import Record
from monitoring.journal.reentrant_queue import ReentrantQueue

COMPRESS = "monitoring.gpu_monitor.metrics_log"

# The limits of a run's gpu_stats.jsonl.
LIMITS = GpuMonitorOptions()

# What compresses gives way to everything else.
NICENESS = 19

APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class MetricsLog:
    """Appends lines to one file, each at once; what a full disk does not take waits for the next line.

    Any thread may append, and so may signal handlers (see reentrant_queue). A forked child appends to the
    same file, and leaves it to its parent to begin another.
    """

    def __init__(
        self,
        directory: Path,
        prefix: str,
        stamp: str,
        *,
        file_bytes: int = LIMITS.file_mb * MIB,
        keep: int = LIMITS.files,
    ) -> None:
        """Begin DIRECTORY/PREFIX_STAMP.jsonl, with a number appended where another process was as quick.

        A file of `file_bytes` moves aside; all together take `keep` times as much. RunDirectoryError if it
        cannot be made.
        """
        for number in itertools.count(1):
            suffix = "" if number == 1 else f"_{number}"
            self.path = directory / f"{prefix}_{stamp}{suffix}.jsonl"
            try:
                directory.mkdir(parents=True, exist_ok=True)
                fd = os.open(self.path, APPEND | os.O_EXCL, 0o644)
                break
            except FileExistsError as error:
                if directory.exists() and not directory.is_dir():
                    raise RunDirectoryError(f"{directory} is not a directory") from error
            except OSError as error:
                raise unwritable(self.path, error) from error
        self._file = KeptLines(fd)
        self._file_bytes, self._keep = file_bytes, keep
        self._first = 1
        self._owner = os.getpid()
        self._compressing: int | None = None
        self._queue = ReentrantQueue(self._take)
        self.removed = 0
        """Full files that had to go before they were compressed."""

    @property
    def failure(self) -> OSError | None:
        """Why the last line is not in the file, None if it is."""
        return self._file.failure

    @property
    def lost(self) -> int:
        """Lines that were given up, because too many waited."""
        return self._file.lost

    def append(self, record: Record) -> None:
        """Write one line; never raises. NaN and infinities are null and named in `nonfinite`."""
        self._queue.add(record)

    def close(self) -> None:
        """Close the file, after a last try to write what waits; a second call does nothing."""
        self._queue.add(None)

    def _take(self, record: Record | None) -> None:
        if self._file.fd == -1:
            return
        if record is None:
            self._file.write_waiting()
        else:
            self._file.append(strict_line(record))
        if self._file.size >= self._file_bytes and self.failure is None and os.getpid() == self._owner:
            with contextlib.suppress(OSError):  # the next line tries it again
                self._begin_next()
        if record is None:
            self._file.close()
            self._is_compressing()  # it is collected, if it has ended by now

    def _begin_next(self) -> None:
        """Move the full file aside, begin another, and have full ones compressed."""
        with contextlib.suppress(FileNotFoundError):  # it was moved from outside
            # an exception may have come in between, after it had moved
            if os.path.samestat(os.fstat(self._file.fd), self.path.stat()):
                self.removed += move_aside(self.path, self._first, self._file.num_lines, self._keep)
        before, self._file.fd = self._file.fd, os.open(self.path, APPEND, 0o644)
        os.close(before)
        self._file.size, self._first = 0, self._file.num_lines + 1
        if not self._is_compressing():
            self._compressing = spawned([COMPRESS, str(self.path), str(self._file_bytes), str(self._keep)])

    def _is_compressing(self) -> bool:
        if self._compressing is not None and is_collected(self._compressing):
            self._compressing = None
        return self._compressing is not None


def file_stamp(seconds: float) -> str:
    """UTC epoch seconds as YYYYMMDD_HHMMSS, in UTC as everything in the files is."""
    return time.strftime("%Y%m%d_%H%M%S", time.gmtime(seconds))


THINNING = Thinning(
    "file_mb times files are full",
    # each message, state of a GPU and number that was not finite is kept
    distinct=lambda record: [record.get(name) for name in ("message", "state", "nonfinite", "refused_step")],
    series=lambda record: record.get("gpu_index"),
)


def compress_full(path: Path, *, file_bytes: int, keep: int) -> None:
    """Compress the files of a log that are full, and thin the oldest, until `keep` are left."""
    # nobody is there to read messages; docs/gpus-without-a-run.md has them
    archiver = Archiver(path, THINNING, file_bytes=file_bytes, keep=keep, tell=lambda severity, message: None)
    archiver.work(threading.Event())


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # not allowed here
        os.nice(NICENESS)
    compress_full(Path(sys.argv[1]), file_bytes=int(sys.argv[2]), keep=int(sys.argv[3]))
