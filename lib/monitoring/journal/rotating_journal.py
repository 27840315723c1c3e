"""A journal that is cut into files by size: NAME is the newest, NAME.1 the one before it, and so on.

Older ones may be archives (see encoding.archive). A file and its archive may both be there for a while:
readers know records by `seq`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from monitoring.journal.encoding.archive import Archive, archives
from monitoring.journal.journal import Journal
from monitoring.journal.records import Record, last_line, last_record, parse, records_in


class RotatingJournal:
    """Appends like a Journal; a full file moves aside, and the oldest of more than `keep` such is removed.

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
        self._seq = int(str(self.last["seq"])) if self.last is not None else 0
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
        """Move every file one number up; a crash in between leaves a hole in the numbers, but every file."""
        self._journal.close()
        self._remove_archived()
        free = 1
        while free < self._keep and numbered(self._path, free).exists():
            free += 1
        self.removed += numbered(self._path, free).exists()
        for number in range(free, 0, -1):  # onto the last one, if there are as many as are kept
            os.replace(numbered(self._path, number - 1), numbered(self._path, number))
        self._reopen()

    def _remove_archived(self) -> None:
        """Remove files of which there is an archive: here, so that they move and go in one thread only."""
        last = archived_to(self._path)
        for number in _numbers(self._path):
            found = last_record(numbered(self._path, number))
            if found is not None and int(str(found["seq"])) <= last:
                numbered(self._path, number).unlink()

    def _reopen(self) -> None:
        self._journal = Journal(self._path)
        self._journal.seq = max(self._journal.seq, self._seq)


def numbered(path: Path, number: int) -> Path:
    """Return the file of that age; 0 is the newest."""
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def archived_to(path: Path) -> int:
    """Return the `seq` of the last record that is in an archive, 0 without any."""
    return max((archive.last for archive in archives(path)), default=0)


def oldest_unarchived(path: Path) -> tuple[BinaryIO, int, int] | None:
    """Return the oldest full file without an archive, opened, and the `seq` of its first and last record."""
    if not _numbers(path):
        return None
    done, found = archived_to(path), None
    opened = open_files(path)
    for file in opened:
        last = parse(last_line(file.fileno())[0])
        first = next((record for record, _ in records_in(file)), None)
        full = file is not opened[-1]  # the newest is still written
        if found is None and full and first and last and int(str(last["seq"])) > done:
            file.seek(0)
            found = file, int(str(first["seq"])), int(str(last["seq"]))
        else:
            file.close()
    return found


def open_files(path: Path) -> list[BinaryIO]:
    """All files of a journal but archives, oldest first, opened so that none is missed while they move up.

    One may appear twice then; the caller recognizes it by `seq`.
    """
    # from new to old: files only move up, so that one that moves meanwhile is met twice, never missed
    opened: list[BinaryIO] = []
    number = 0
    while number <= max(_numbers(path), default=0):
        with contextlib.suppress(FileNotFoundError):
            opened.append(numbered(path, number).open("rb"))
        number += 1
    return opened[::-1]


def newest_record(path: Path) -> Record | None:
    """Return the last complete record of all files, None without any."""
    for number in [0, *sorted(_numbers(path))]:
        record = last_record(numbered(path, number))
        if record is not None:
            return record
    for archive in archives(path)[-1:]:
        with archive.open() as file:
            return max((record for record, _ in records_in(file)), key=lambda it: int(str(it["seq"])))
    return None


def open_all(path: Path) -> Iterator[tuple[BinaryIO, Archive | None]]:
    """Yield the files of a journal, oldest first, and of which archive they are; each is open until the next.

    An archive is listed after the files were opened that it may replace.
    """
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(file) for file in open_files(path)]
        for archive in archives(path):
            with contextlib.suppress(FileNotFoundError), archive.open() as file:
                yield file, archive
        for file in opened:
            yield file, None


def read_rotated(path: Path) -> Iterator[Record]:
    """Yield every complete record of all files, oldest first, each once."""
    seq = 0
    for file, archive in open_all(path):
        if archive is not None and archive.last <= seq:
            continue
        for record, _ in records_in(file):
            found = record.get("seq")
            if isinstance(found, int) and found > seq:
                seq = found
                yield record


def _numbers(path: Path) -> list[int]:
    names = [other.name.removeprefix(f"{path.name}.") for other in path.parent.glob(f"{path.name}.*")]
    return [int(name) for name in names if re.fullmatch(r"[1-9]\d*", name)]
