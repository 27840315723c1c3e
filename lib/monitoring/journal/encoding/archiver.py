"""Compresses a journal's full files in the background, and thins the oldest when space runs out.

A follower that lags need not be waited for: it reads archives like any other file.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from monitoring.journal.alerts import Severity
from monitoring.journal.encoding.archive import (
    FullFile,
    archive_path,
    archives,
    remove_archived,
    remove_unfinished,
    thinned,
    unarchived,
    write_archive,
)
from monitoring.journal.records import Record

# Seconds between two looks for a full file.
LOOK_EVERY = 5.0

# Seconds of rest per second of CPU time: a quarter of a core at most, on a machine that trains.
REST = 3.0

# Records merged into one where space runs out, and again, until one stands for LONGEST of them.
THIN = 10
LONGEST = 1000

Report = Callable[[Severity, str], None]


@dataclass(frozen=True)
class Thinning:
    """How records of one kind of file are thinned, where space runs out."""

    where: str
    """Why there is no more room, in words."""
    distinct: Callable[[Record], object]
    """The part of a record that is kept: a change of it begins a new group."""
    series: Callable[[Record], object] = lambda record: None
    """The series that a record belongs to, where several are interleaved in one file."""


class Archiver:
    """Keeps the files of one journal or log below `keep` times `file_bytes`, the newest two included."""

    def __init__(self, path: Path, thinning: Thinning, *, file_bytes: int, keep: int, tell: Report) -> None:
        """`tell` gets messages for the user, possibly the same one many times."""
        self._path = path
        self._thinning = thinning
        # of the two newest files one is being written, and one may wait to be compressed
        self._most = max(1, keep - 2) * file_bytes
        self._tell = tell
        self._begun = False

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
        if not self._begun:
            remove_unfinished(self._path)
            self._begun = True
        remove_archived(self._path)
        while waiting := unarchived(self._path):
            full = waiting[0]
            # its writer removes the oldest
            with contextlib.suppress(FileNotFoundError), full.open() as lines:
                write_archive(archive_path(self._path, full.first, full.last), _paced(lines, ending))
                remove_archived(self._path)
                self._make_room(ending)

    def _make_room(self, ending: threading.Event) -> None:
        while len(stored := archives(self._path)) > 1 and _size(stored) > self._most:
            levels = [archive.thinned() for archive in stored]
            # the least thinned, and of these the oldest: all of a run keeps about the same resolution
            least = min(levels)
            if least >= LONGEST:
                stored[0].path.unlink()
                self._tell(
                    "warning", f"{self._path.name}: the oldest samples were removed: {self._thinning.where}"
                )
                continue
            self._thin(stored[levels.index(least)], ending)

    def _thin(self, archive: FullFile, ending: threading.Event) -> None:
        with archive.open() as lines:
            kept = thinned(_paced(lines, ending), THIN, self._thinning.distinct, self._thinning.series)
            write_archive(archive.path, kept)
        self._tell(
            "info", f"{self._path.name}: of the oldest samples every {THIN}th is kept: {self._thinning.where}"
        )


class _EndedError(Exception):
    """The run has ended."""


def _paced(lines: Iterable[bytes], ending: threading.Event) -> Iterator[bytes]:
    begun = time.thread_time()
    for line in lines:
        yield line
        worked = time.thread_time() - begun
        # not after every line: a wait costs more than a line does
        if worked > 0.02:
            if ending.wait(REST * worked):
                raise _EndedError
            begun = time.thread_time()


def _size(stored: Iterable[FullFile]) -> int:
    return sum(archive.path.stat().st_size for archive in stored)
