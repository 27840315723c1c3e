"""A journal that is cut into files by size: NAME is the newest, NAME.1 the one before it, and so on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from monitoring.journal.journal import Journal
from monitoring.journal.records import Record, last_record, records_in


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
        self._journal = Journal(path)
        self._seq = int(str(self.last["seq"])) if self.last is not None else 0
        self._journal.seq = max(self._journal.seq, self._seq)

    def append(self, record: Record) -> None:
        """Write one record with the next `seq`; OSError or a Journal's error if no new file can be begun."""
        if self._journal.closed:
            self._reopen()
        self._journal.append_any(record)
        self._seq = self._journal.seq
        if os.stat(self._path).st_size >= self._file_bytes and not self._journal.is_behind:
            self._rotate()

    def close(self) -> None:
        self._journal.close()

    def _rotate(self) -> None:
        """Move every file one number up; a crash in between leaves a hole in the numbers, but every file."""
        self._journal.close()
        free = 1
        while free < self._keep and numbered(self._path, free).exists():
            free += 1
        for number in range(free, 0, -1):  # onto the last one, if there are as many as are kept
            os.replace(numbered(self._path, number - 1), numbered(self._path, number))
        self._reopen()

    def _reopen(self) -> None:
        self._journal = Journal(self._path)
        self._journal.seq = max(self._journal.seq, self._seq)


def numbered(path: Path, number: int) -> Path:
    """The file of that age; 0 is the newest."""
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def open_files(path: Path) -> list[BinaryIO]:
    """All files of a journal, oldest first, opened so that none is missed if it is rotated meanwhile.

    One may appear twice then; the caller recognises it by `seq`.
    """
    opened: list[BinaryIO] = []
    number = 0
    while number <= max(_numbers(path), default=0):
        with contextlib.suppress(FileNotFoundError):
            opened.append(numbered(path, number).open("rb"))
        number += 1
    return opened[::-1]


def newest_record(path: Path) -> Record | None:
    """The last complete record of all files, None without any."""
    for number in [0, *sorted(_numbers(path))]:
        record = last_record(numbered(path, number))
        if record is not None:
            return record
    return None


def read_rotated(path: Path) -> Iterator[Record]:
    """Every complete record of all files, oldest first, each once."""
    seq = 0
    with contextlib.ExitStack() as stack:
        for file in [stack.enter_context(file) for file in open_files(path)]:
            for record, _ in records_in(file):
                found = record.get("seq")
                if isinstance(found, int) and found > seq:
                    seq = found
                    yield record


def _numbers(path: Path) -> list[int]:
    names = [other.name.removeprefix(f"{path.name}.") for other in path.parent.glob(f"{path.name}.*")]
    return [int(name) for name in names if re.fullmatch(r"[1-9]\d*", name)]
