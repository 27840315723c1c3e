"""Reads growing journals, for two kinds of readers.

Tail goes on after a `seq`, through rotated and compressed files: followers, which may miss nothing.
RecordTail has what is new at the end of a file: rules, dashboards and exporters, which look again and again.
Four more read what these would read too slowly: series.journals all metrics of a long journal, in slices;
read_end and series.ends how ten thousand runs end; LastStep one number, for each sample of the GPUs; and
web.events of millions of records those that are no steps.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from monitoring.journal.encoding.archive import archives, full_files
from monitoring.journal.records import Record, last_line, parse, parsed, read_records, records_in, seq_of
from monitoring.journal.rotating_journal import open_files

# Below so many bytes a file is read from one end to the other instead of being searched by halves.
FEW_BYTES = 65536


class Tail:
    """Reads the records after a `seq` into `waiting`, from which the reader takes them."""

    def __init__(self, path: Path, *, event: str = "") -> None:
        """`event`, if given, replaces that of the records."""
        self._path = path
        self._event = event
        self.waiting: deque[Record] = deque()
        """Records that were read and not taken yet."""
        self.seq = 0
        """`seq` of the last record taken."""
        self.offset = 0
        """Byte offset of that record's end in the file that holds it."""
        self.has_more = False
        """Whether the last `fill` stopped before the end."""
        self._offsets: deque[int] = deque()
        self._file: BinaryIO | None = None
        self._read_to = 0  # a byte offset in the file
        self._read_seq = 0
        self._size = -1  # bytes of the file when it was last read to its end
        self._searched: tuple[int, int] | None = None  # the newest file as it was when no file had a record

    def seek(self, seq: int, *, offset: int = 0) -> int:
        """Move to just after the record `seq`; returns how many later ones are gone with removed files.

        `offset`, if not 0, is the end of that record, or of an earlier one, in the newest file.
        """
        self.close()
        self.seq = self._read_seq = seq
        self.offset = self._read_to = offset
        return 0 if offset else self._find_file()

    def fill(self, most: int, *, whatever_size: bool = False) -> None:
        """Read until `most` records wait or there are no more.

        A file that has the size that it was last read at is left alone, unless `whatever_size`.
        """
        self.has_more = False
        while len(self.waiting) < most:
            if self._file is None and not self._open(whatever_size=whatever_size):
                return
            more = self._read(most - len(self.waiting), whatever_size=whatever_size)
            if not more and not self._follow_rotation():
                return
        self.has_more = True

    def take(self) -> Record:
        """Return the first record that waits."""
        record = self.waiting.popleft()
        self.seq, self.offset = seq_of(record), self._offsets.popleft()
        return record

    def take_all(self) -> list[Record]:
        """Return the records that wait."""
        taken = list(self.waiting)
        if taken:
            self.seq, self.offset = seq_of(taken[-1]), self._offsets[-1]
            self.waiting.clear()
            self._offsets.clear()
        return taken

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._size, self._searched = None, -1, None
        self.waiting.clear()
        self._offsets.clear()

    def _open(self, *, whatever_size: bool) -> bool:
        if not self._read_to:
            newest = inode_and_size(self._path)
            # nothing was written since no file had the record: another search would find none either
            if newest == self._searched and not whatever_size:
                return False
            self._find_file()
            self._searched = newest if self._file is None else None
        else:
            self._file = self._path.open("rb") if self._path.exists() else None
        return self._file is not None

    def _read(self, most: int, *, whatever_size: bool) -> bool:
        """Read up to `most` records of the file; False when its end is reached."""
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        if size == self._size and not whatever_size:
            return False
        self._file.seek(self._read_to)
        lines = list(islice(self._file, most))
        if lines and not lines[-1].endswith(b"\n"):  # torn, or being written
            lines.pop()
        for line, record in zip(lines, parsed(lines), strict=True):
            self._read_to += len(line)
            # a file and its archive may both be there: each record counts once
            if record is not None and (seq := seq_of(record)) > self._read_seq:
                self._read_seq = seq
                if self._event:
                    record["event"] = self._event
                self.waiting.append(record)
                self._offsets.append(self._read_to)
        self._size = -1 if len(lines) == most else size  # -1: there may be more at this size
        return len(lines) == most

    def _follow_rotation(self) -> bool:
        """Move to the file with the next record, if ours is no longer the newest; False without one."""
        assert self._file is not None
        # our file still has the journal's name, so its end is the journal's
        if inode_and_size(self._path)[0] == os.fstat(self._file.fileno()).st_ino:
            return False
        # looked for by a second Tail: this one keeps its place if the next record is not written yet
        found = Tail(self._path)
        found._read_seq = self._read_seq
        found._find_file()
        if found._file is None:
            return False
        self._file.close()
        self._file, self._read_to, self._size = found._file, found._read_to, -1
        return True

    def _find_file(self) -> int:
        """Open the file that has the next record at its place; returns how many before that are gone."""
        wanted, gone = self._read_seq + 1, 0
        # before archives are listed: one of these may become one
        opened = [file for _, file in open_files(self._path)]
        stored = archives(self._path)
        for archive in stored:
            if self._file is None and archive.last >= wanted:
                with contextlib.suppress(FileNotFoundError):  # it was removed
                    gone += self._try(archive.open(), wanted, is_oldest=archive is stored[0], search=False)
        for number, file in enumerate(opened):
            if self._file is None and _may_hold(wanted, file):
                gone += self._try(file, wanted, is_oldest=number == 0 and not stored, search=True)
            elif file is not self._file:
                file.close()
        return max(0, gone)

    def _try(self, file: BinaryIO, wanted: int, *, is_oldest: bool, search: bool) -> int:
        """Stay at the record `wanted`, if a file has it or a later one; returns how many were before that.

        What is compressed can only be read from its start.
        """
        find = first_place if search else place_after
        place = find(file, lambda record: seq_of(record) >= wanted)
        if place is None:
            file.close()
            return 0
        self._file, self._read_to = file, place
        if not is_oldest or place:
            return 0
        return next((seq_of(record) for record, _ in records_in(file)), wanted) - wanted


def _may_hold(seq: int, file: BinaryIO) -> bool:
    """Whether a file goes as far as `seq`; True if its last record cannot be read."""
    line, end = last_line(file.fileno())
    record = parse(line)
    return end > 0 and (record is None or seq_of(record) >= seq)


def first_place(file: BinaryIO, is_reached: Callable[[Record], bool]) -> int | None:
    """Return the offset of the first record for which `is_reached` holds, as for all after it; None without.

    Bisects: only a few places of a long file are read.
    """
    low, high = 0, os.fstat(file.fileno()).st_size
    while high - low > FEW_BYTES:
        middle = (low + high) // 2
        file.seek(middle)
        # the rest of the line that `middle` is in
        file.readline()
        begins = file.tell()
        record = next((record for record, _ in records_in(file, begins)), None)
        # also where no record begins between `middle` and `high`
        if record is None or is_reached(record) or begins >= high:
            high = middle
        else:
            low = begins
    return place_after(file, is_reached, low)


def place_after(file: BinaryIO, is_reached: Callable[[Record], bool], begins: int = 0) -> int | None:
    """Return the same offset, by reading every record from `begins` on."""
    for record, ends in records_in(file, begins):
        if is_reached(record):
            return begins
        begins = ends
    return None


def inode_and_size(path: Path) -> tuple[int, int]:
    """Return inode and size in bytes; (0, 0) for a file that does not exist."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_size


class RecordTail:
    """Yields each complete record of a file once; a file that was replaced or cut is read from its start.

    Of a file that was moved aside (see rotating_journal), the rest comes first, and what was moved after it.
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
        is_behind = False
        for full in full_files(self._path):
            inode, _ = inode_and_size(full.path)
            if is_behind:
                self._inode, self._offset = inode, 0
            is_behind = is_behind or 0 != inode == self._inode
            for record, offset in read_records(full.path, self._offset) if is_behind else ():
                self._offset = offset
                yield record
