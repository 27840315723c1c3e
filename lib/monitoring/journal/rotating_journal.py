"""A journal or log that is cut into files by size: NAME is the newest, the full ones are NAME.FIRST-LAST.

These become archives (see encoding.archive). A file and its archive may both be there for a while.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from monitoring.journal.encoding.archive import FullFile, archives, full_files, move_aside
from monitoring.journal.journal import Journal
from monitoring.journal.records import Record, last_record, read_records, records_in, seq_of


class RotatingJournal:
    """Appends like a Journal; a full file moves aside, and the oldest of more than `keep` such goes.

    `seq` continues over all files. Errors of the opening are those of Journal.
    """

    def __init__(self, path: Path, *, file_bytes: int, keep: int) -> None:
        self._path = path
        self._file_bytes = file_bytes
        self._keep = keep
        self.last = newest_record(path)
        """The last record that was there when this was opened."""
        self.removed = 0
        """Files that were removed without an archive."""
        self._journal = Journal(path)
        self._seq = seq_of(self.last or {})
        # right after a rotation the newest file is empty, and numbers go on from the one before
        self._journal.seq = max(self._journal.seq, self._seq)

    def append(self, record: Record, *, is_finite: bool = False) -> None:
        """Write one record with the next `seq`, as Journal.append_any does.

        OSError or a Journal's error if no new file can be begun.
        """
        if self._journal.closed:
            self._reopen()
        self._journal.append_any(record, is_finite=is_finite)
        self._seq = self._journal.seq
        # not with lines that wait for the disk: closing the file would lose them
        if os.stat(self._path).st_size >= self._file_bytes and not self._journal.is_behind:
            self._rotate()

    def close(self) -> None:
        self._journal.close()

    def _rotate(self) -> None:
        """Move the full file aside and begin another; after a kill in between the next one does that."""
        self._journal.close()
        first = next((seq_of(record) for record, _ in read_records(self._path)), self._seq)
        self.removed += move_aside(self._path, first, self._seq, self._keep)
        self._reopen()

    def _reopen(self) -> None:
        self._journal = Journal(self._path)
        self._journal.seq = max(self._journal.seq, self._seq)


def open_files(path: Path) -> list[tuple[FullFile | None, BinaryIO]]:
    """All files of a journal but archives, oldest first, each once; the newest is no full file yet."""
    opened: list[tuple[FullFile | None, BinaryIO]] = []
    with contextlib.suppress(FileNotFoundError):
        opened.append((None, path.open("rb")))
    # after the newest, which may become one of them meanwhile: the other way round it would be missed
    for full in full_files(path)[::-1]:
        with contextlib.suppress(FileNotFoundError):
            file = full.open()
            if opened and os.path.sameopenfile(file.fileno(), opened[0][1].fileno()):
                opened.pop()[1].close()
            opened.append((full, file))
    return opened[::-1]


def newest_record(path: Path) -> Record | None:
    """Return the last complete record of all files, None without any."""
    for newest in [path, *(full.path for full in full_files(path)[::-1])]:
        record = last_record(newest)
        if record is not None:
            return record
    for archive in archives(path)[-1:]:
        with archive.open() as file:
            return max((record for record, _ in records_in(file)), key=seq_of)
    return None


def open_all(path: Path) -> Iterator[tuple[BinaryIO, FullFile | None]]:
    """Yield the files of a journal, oldest first, and of which archive they are; each is open until the next.

    An archive is listed after the files were opened that it may replace.
    """
    with contextlib.ExitStack() as stack:
        opened = [(full, stack.enter_context(file)) for full, file in open_files(path)]
        first = next((full.first for full, _ in opened if full is not None), sys.maxsize)
        for archive in archives(path):
            if archive.first < first:
                with contextlib.suppress(FileNotFoundError), archive.open() as file:
                    yield file, archive
        for _, file in opened:
            yield file, None


def read_rotated(path: Path) -> Iterator[Record]:
    """Yield every complete record of all files, oldest first, each once."""
    for file, _ in open_all(path):
        yield from (record for record, _ in records_in(file))
