"""Appends complete lines to a file, and keeps them in memory while the disk takes none."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence

from monitoring.journal.records import last_line
from monitoring.journal.reentrant_queue import raised_by_handler

# Bytes kept in memory while a disk takes nothing: about 50,000 records of ten scalars.
BACKLOG_BYTES = 16 * 2**20

# Lines are kept together in blocks of about this many bytes, because one small object per line takes many
# times its length: the encoder's buffer of 1 KiB is cut to size, and nothing else fits into what is cut off.
BLOCK_BYTES = 256 * 1024


class LineFile:
    """Writes complete lines to an open file, of which it is the one writer; closing is the caller's.

    `note` is called with a line that is in the file, while the file is still doubtful: where a signal handler
    raises in the middle, the next repair calls it once more.
    """

    __slots__ = ("fd", "is_doubtful")

    def __init__(self, fd: int) -> None:
        """`fd` is open for reading and appending."""
        self.fd = fd
        self.is_doubtful = False
        """Whether the file may end with half a line: a write failed, or an exception came in the middle."""

    def write(self, line: bytes, note: Callable[[bytes], None]) -> OSError | None:
        """Append a line; if the disk takes only a part, cut that off again and return why."""
        if self.is_doubtful and (failure := self.repair(note)):  # not now; every later write tries it first
            return failure
        written = 0
        try:
            # while bytes are written: an exception of a signal handler may come between two writes
            self.is_doubtful = True
            while written < len(line):
                # a nearly full disk takes a part of a line, and the error comes with the next write
                written += os.write(self.fd, line[written:])
            note(line)
            self.is_doubtful = False
        except OSError as error:
            if raised_by_handler(error):
                raise
            # refused before its first byte, the file still ends with a complete line
            self.is_doubtful = bool(written)
            if written:
                self.repair(note)
            return error
        return None

    def repair(self, note: Callable[[bytes], None]) -> OSError | None:
        """Cut off half a line at the end, note the last complete one (b"" without any); or say why not."""
        try:
            line, end = last_line(self.fd)
            if end < os.fstat(self.fd).st_size:
                os.ftruncate(self.fd, end)
            note(line)
            self.is_doubtful = False
        except OSError as error:
            if raised_by_handler(error):
                raise
            return error
        return None


class Backlog:
    """Lines that wait for a disk; beyond BACKLOG_BYTES the oldest are lost.

    It takes as much memory as its lines have bytes, and at most two blocks more.
    """

    def __init__(self) -> None:
        self.count = 0
        self._size = 0
        self._blocks: deque[bytearray] = deque()
        self._begins = 0  # offset of the first line in the first block

    def add(self, line: bytes) -> int:
        """Queue a line; returns how many of the oldest were dropped for it."""
        size, lost = len(line), 0
        if not self._blocks or len(self._blocks[-1]) + size > BLOCK_BYTES:
            self._blocks.append(bytearray())
        # signal handlers run after calls only, so what one raises finds all of these three done, or none
        self._blocks[-1] += line
        self.count += 1
        self._size += size
        while self._size > BACKLOG_BYTES:
            self.drop_first()
            lost += 1
        return lost

    def first(self) -> bytes:
        """Return the oldest line, b"" without any."""
        if not self.count:
            return b""
        return bytes(self._blocks[0][self._begins : self._end()])

    def is_first(self, line: bytes) -> bool:
        """Whether a line is the oldest one."""
        return bool(self.count) and line == self.first()

    def drop_first(self) -> None:
        """Let the oldest line go."""
        end, length = self._end(), len(self._blocks[0])
        self._size -= end - self._begins
        self.count -= 1
        if end < length:
            self._begins = end
        else:
            self._begins = 0
            self._blocks.popleft()

    def _end(self) -> int:
        return self._blocks[0].index(b"\n", self._begins) + 1


class KeptLines(LineFile):
    """A file whose lines wait in memory while the disk takes none, for the next call.

    Not for journals, whose readers are told by a record what came late.
    """

    __slots__ = ("failure", "lost", "num_lines", "size", "waiting")

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.waiting = Backlog()
        self.lost = 0
        """Lines that were given up, because more than BACKLOG_BYTES waited."""
        self.failure: OSError | None = None
        """Why the last line is not in the file, None if it is."""
        self.num_lines = self.size = 0
        """The lines that were written, and their bytes."""

    def append(self, line: bytes) -> None:
        """Write a line after those that wait."""
        self.lost += self.waiting.add(line)
        self.write_waiting()

    def append_all(self, lines: Sequence[bytes]) -> None:
        """Write lines after those that wait, with one write if the disk takes them all."""
        before = os.fstat(self.fd).st_size
        self.failure = None if self.waiting.count else self.write(b"".join(lines), lambda line: None)
        if self.failure is None and not self.waiting.count:
            return
        there = os.fstat(self.fd).st_size - before
        for line in lines:
            if there < len(line):  # the disk took those before it
                self.append(line)
            there -= len(line)

    def write_waiting(self) -> None:
        """Write queued lines, as far as the disk has room."""
        # first: the oldest may be in the file already, where a signal handler raised
        self.failure = self.repair(self._note) if self.is_doubtful else None
        while self.waiting.count and self.failure is None:
            self.failure = self.write(self.waiting.first(), self._note)

    def close(self) -> None:
        os.close(self.fd)
        self.fd = -1

    def _note(self, line: bytes) -> None:
        """Count a line that is in the file, and keep it in memory no longer."""
        if self.waiting.is_first(line):
            self.waiting.drop_first()
            self.num_lines += 1
            self.size += len(line)
