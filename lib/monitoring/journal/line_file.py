"""Appends complete lines to a file, and keeps them in memory while the disk takes none."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable

from monitoring.journal.records import last_line

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
        """Append a line; if the disk does not take it, cut off what it took, and say why.

        OSError of a signal handler that comes when the line is there.
        """
        written = 0
        try:
            if self.is_doubtful:
                self.repair(note)
            before = os.fstat(self.fd).st_size
        except OSError as error:  # not now; every later write tries it first
            return error
        try:
            # while bytes are written: an exception of a signal handler may come between two writes
            self.is_doubtful = True
            while written < len(line):
                # a nearly full disk takes a part of a line, and the error comes with the next write
                written += os.write(self.fd, line[written:])
            note(line)
            self.is_doubtful = False
        except OSError as error:
            # by the file's size: a handler's error may have come between the write and its count
            with contextlib.suppress(OSError):
                written = os.fstat(self.fd).st_size - before
                # refused before its first byte, the file still ends with a complete line
                self.is_doubtful = bool(written)
                if written and written != len(line):
                    self.repair(note)
            if self.is_doubtful and written == len(line):
                raise  # a signal handler's
            return error
        return None

    def repair(self, note: Callable[[bytes], None]) -> None:
        """Cut off half a line at the end, and note the last complete one, b"" without any."""
        line, end = last_line(self.fd)
        if end < os.fstat(self.fd).st_size:
            os.ftruncate(self.fd, end)
        note(line)
        self.is_doubtful = False


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
        """Keep a line; returns how many of the oldest are lost for it."""
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
