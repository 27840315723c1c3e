"""Reads what is new at the end of a growing file of records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from monitoring.journal.records import Record, read_records
from monitoring.journal.rotating_journal import numbered


class RecordTail:
    """Yields each complete record of a file once; a file that was replaced or cut is read from its start.

    Of a file that was moved aside as NAME.1 (see rotating_journal), the rest comes first.
    """

    def __init__(self, path: Path, *, last_bytes: int | None = None) -> None:
        """`last_bytes`, if given, is how much of a file that is there already is read, from its end."""
        self._path = path
        self._last_bytes = last_bytes
        self._offset = self._size = 0
        self._inode = 0

    def new(self) -> Iterator[Record]:
        """Yield the records since the last call, none if there is no file; a caller may stop in between."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return
        # another inode: the file was replaced or rotated; fewer bytes: it was cut in place
        if status.st_ino != self._inode or status.st_size < self._offset:
            yield from self._rest_of_moved()
            first = self._last_bytes if self._inode == 0 else None
            self._offset = 0 if first is None else max(0, status.st_size - first)
            self._inode = status.st_ino
        elif status.st_size == self._size:
            return  # as it was when it was read to its end
        self._size = -1  # until its end is reached: a caller may stop in between
        for record, offset in read_records(self._path, self._offset):
            self._offset = offset
            yield record
        self._size = status.st_size

    def _rest_of_moved(self) -> Iterator[Record]:
        moved = numbered(self._path, 1)
        try:
            # after two rotations between two looks NAME.1 is another file, which then is not continued
            ours = moved.stat().st_ino == self._inode
        except FileNotFoundError:
            return
        for record, offset in read_records(moved, self._offset) if ours else ():
            self._offset = offset
            yield record
