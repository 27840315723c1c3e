"""Files of metrics that a monitor keeps next to a training: one JSON object per line, one file per start.

A full file moves aside as NAME.FIRST-LAST, by the numbers of its lines. The training's process only starts
another one, at low priority, which compresses what is full and ends:

    python -P -m monitoring.gpu_monitor.metrics_log PATH FILE_BYTES KEEP

A kill of that leaves each file complete, and the next one to start does the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from monitoring.errors import RunDirectoryError, unwritable
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.sample import MIB
from monitoring.host.process import is_collected
from monitoring.journal.encoding.archive import archive_path, archives
from monitoring.journal.encoding.archiver import Archiver
from monitoring.journal.encoding.json_form import strict_line
from monitoring.journal.line_file import KeptLines
from monitoring.journal.records import Record, records_in
from monitoring.journal.reentrant_queue import ReentrantQueue

COMPRESS = (sys.executable, "-P", "-m", "monitoring.gpu_monitor.metrics_log")

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
        full = full_path(self.path, self._first, self._file.num_lines)
        with contextlib.suppress(FileNotFoundError):  # it was moved from outside
            # an exception may have come in between, after it had moved
            if os.path.samestat(os.fstat(self._file.fd), self.path.stat()):
                self.path.rename(full)
        before, self._file.fd = self._file.fd, os.open(self.path, APPEND, 0o644)
        os.close(before)
        self._file.size, self._first = 0, self._file.num_lines + 1
        oldest, *others = full_files(self.path) or [(0, full)]
        if len(others) >= self._keep:
            oldest[1].unlink()
            self.removed += 1
        if not self._is_compressing():
            self._compressing = os.posix_spawn(
                sys.executable,
                [*COMPRESS, str(self.path), str(self._file_bytes), str(self._keep)],
                os.environ,
                setsid=True,  # a Ctrl-C is the training's
                setsigmask=(),
            )

    def _is_compressing(self) -> bool:
        if self._compressing is not None and is_collected(self._compressing):
            self._compressing = None
        return self._compressing is not None


def full_path(path: Path, first: int, last: int) -> Path:
    """Return the path of a full file of lines with these numbers, until it is compressed."""
    return archive_path(path, first, last).with_suffix("")


def full_files(path: Path) -> list[tuple[int, Path]]:
    """Return the files of a log that are not compressed, oldest first, each with its first line's number."""
    found = []
    for other in path.parent.glob(f"{path.name}.*"):
        match = re.fullmatch(r"(\d+)-(\d+)", other.name.removeprefix(f"{path.name}."))
        if match:
            found.append((int(match[1]), other))
    return sorted(found)


def read_metrics_log(path: Path) -> Iterator[Record]:
    """Yield every line of a log and of its older files, oldest first.

    A file that goes because its archive is complete is opened before archives are listed.
    """
    with contextlib.ExitStack() as stack:
        opened = {}
        for first, other in [*full_files(path), (sys.maxsize, path)]:
            with contextlib.suppress(FileNotFoundError):
                opened[first] = stack.enter_context(other.open("rb"))
        stored = {archive.first: archive for archive in archives(path)}
        for first in sorted({*opened, *stored}):
            with contextlib.suppress(FileNotFoundError):
                file = stored[first].open() if first in stored else opened[first]
                with file:
                    yield from (record for record, _ in records_in(file))


def file_stamp(seconds: float) -> str:
    """UTC epoch seconds as YYYYMMDD_HHMMSS, in UTC as everything in the files is."""
    return time.strftime("%Y%m%d_%H%M%S", time.gmtime(seconds))


class MetricsFiles:
    """The files of one start of a monitor."""

    where = "file_mb times files are full"

    def oldest(self, path: Path) -> tuple[BinaryIO, int, int] | None:
        """Return the oldest full file, as FullFiles has it; a file that has an archive is removed first."""
        done = {archive.first for archive in archives(path)}
        for first, other in full_files(path):
            if first in done:
                other.unlink(missing_ok=True)
                continue
            with contextlib.suppress(FileNotFoundError):  # the monitor had to remove it
                return other.open("rb"), first, int(other.name.rpartition("-")[2])
        return None

    def series(self, record: Record) -> object:
        """Return the GPU: lines of several are interleaved."""
        return record.get("gpu_index")

    def distinct(self, record: Record) -> object:
        """Return what thinning keeps: each message, state of a GPU and number that was not finite."""
        return [record.get(name) for name in ("message", "state", "nonfinite", "refused_step")]


def main(argv: Sequence[str]) -> int:
    """Compress all that is full; 0 then, and what is in the way is on stderr, with its traceback."""
    path, file_bytes, keep = argv
    with contextlib.suppress(OSError):  # not allowed here
        os.nice(NICENESS)
    compress_full(Path(path), file_bytes=int(file_bytes), keep=int(keep))
    return 0


def compress_full(path: Path, *, file_bytes: int, keep: int) -> None:
    """Compress the files of a log that are full, and thin the oldest, until `keep` are left."""
    archiver = Archiver(
        path,
        MetricsFiles(),
        file_bytes=file_bytes,
        keep=keep,
        tell=lambda severity, message: None,  # nobody is there to read it; docs/gpu-monitor.md has it
    )
    archiver.work(threading.Event())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
