"""Full files of gpu_stats.jsonl are compressed in the background, and the oldest thinned if need be.

A follower that lags need not be waited for: it reads archives like any other file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from monitoring.gpu.aggregates import is_the_runs
from monitoring.journal.alerts import Severity
from monitoring.journal.encoding.archive import Archive, archive_path, archives, thinned, write_archive
from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import oldest_unarchived

# Seconds between two looks for a full file.
LOOK_EVERY = 5.0

# Of the time that it takes a core, it rests three times as much: it shares its machine with a training.
REST = 3.0

# So many records become one where space runs out, and again, until one stands for LONGEST of them.
THIN = 10
LONGEST = 1000

# Why there is no more room.
WHERE = "GPU_STATS_FILES times GPU_STATS_FILE_MB are full"

Tell = Callable[[Severity, str], None]


class GpuArchive:
    """Keeps the files of one run below `keep` times `file_bytes`, the newest two included."""

    def __init__(self, path: Path, *, file_bytes: int, keep: int, tell: Tell) -> None:
        """`tell` gets what a user has to know of it, and may get it again and again."""
        self._path = path
        self._most = max(1, keep - 2) * file_bytes
        self._tell = tell

    def run(self, ending: threading.Event) -> None:
        """Work until `ending`; what is not finished then is done by the next agent of the run."""
        while True:
            try:
                self.work(ending)
            except _EndedError:
                return
            except (OSError, EOFError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                self._tell("warning", f"{self._path.name}: full files cannot be compressed: {reason}")
            if ending.wait(LOOK_EVERY):
                return

    def work(self, ending: threading.Event) -> None:
        """Compress every full file, and make room."""
        while (found := oldest_unarchived(self._path)) is not None:
            file, first, last = found
            with file:
                write_archive(archive_path(self._path, first, last), _paced(file, ending))
            self._make_room(ending)

    def _make_room(self, ending: threading.Event) -> None:
        while len(stored := archives(self._path)) > 1 and _size(stored) > self._most:
            levels = [archive.thinned() for archive in stored]
            least = min(levels)
            if least >= LONGEST:
                stored[0].path.unlink()
                self._tell("warning", f"{self._path.name}: the oldest samples were removed: {WHERE}")
                continue
            self._thin(stored[levels.index(least)], ending)

    def _thin(self, archive: Archive, ending: threading.Event) -> None:
        with archive.open() as lines:
            write_archive(archive.path, thinned(_paced(lines, ending), THIN, _distinct))
        self._tell("info", f"{self._path.name}: of the oldest samples every {THIN}th is kept: {WHERE}")


class _EndedError(Exception):
    """The run has ended."""


def _paced(lines: Iterable[bytes], ending: threading.Event) -> Iterator[bytes]:
    begun = time.thread_time()
    for line in lines:
        yield line
        worked = time.thread_time() - begun
        if worked > 0.02:
            if ending.wait(REST * worked):
                raise _EndedError
            begun = time.thread_time()


def _distinct(record: Record) -> object:
    """No attempt, no state of a GPU and no change of whose it is are thinned away."""
    gpus = cast("list[dict[str, Any]]", record.get("multi_gpu_data", ()))
    return record["attempt"], record["event"], [(gpu["state"], is_the_runs(gpu)) for gpu in gpus]


def _size(stored: Iterable[Archive]) -> int:
    return sum(archive.path.stat().st_size for archive in stored)
