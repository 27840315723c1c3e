"""The file format of a `.wandb` transaction log: read it, cut it where it is torn, append to it.

The format is LevelDB's log (github.com/google/leveldb, doc/log_format.md) with W&B's 7-byte header: blocks of
32 KiB, in them chunks of checksum, length, type and data; a record that crosses blocks is several chunks.
W&B's checksum is plain CRC-32 (zlib). The records hold W&B's protobuf `Record`.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from monitoring.trackers import write_at

# ":W&B", W&B's magic number 0xBEE1, format version 0; wandb-core refuses another version.
HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
BLOCK = 32 * 1024
CHUNK = struct.Struct("<IHB")
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass(frozen=True)
class StoredRecord:
    """One record of a log and the bytes it takes in the file."""

    data: bytes
    start: int
    end: int


def read_log(path: Path, after: int = 0) -> Iterator[StoredRecord]:
    """Yield the intact records from the start of a log up to the first torn or damaged one.

    `after`, if not 0, is the end of a record: those after it. Reads block by block: a log may be larger than
    the memory.
    """
    parts: list[bytes] = []
    start = 0
    for kind, data, at in _chunks(path, after):
        starts = kind in (WHOLE, FIRST)
        # a record within a record, or the rest of none: the log is damaged from here on
        if starts == bool(parts):
            return
        if starts:
            start = at
        parts.append(data)
        if kind in (WHOLE, LAST):
            yield StoredRecord(b"".join(parts), start, at + CHUNK.size + len(data))
            parts = []


def _chunks(path: Path, after: int) -> Iterator[tuple[int, bytes, int]]:
    """Kind, data and place of each chunk up to the first that is torn or damaged."""
    with path.open("rb") as file:
        begins = after - after % BLOCK
        file.seek(begins)
        while block := file.read(BLOCK):
            at = max(after - begins, 0 if begins else len(HEADER))
            if not begins and not block.startswith(HEADER):
                return
            while at + CHUNK.size <= BLOCK:  # after that is the end of a block that no chunk fits into
                if at + CHUNK.size > len(block):
                    return
                checksum, length, kind = CHUNK.unpack_from(block, at)
                data = block[at + CHUNK.size : at + CHUNK.size + length]
                if len(data) < length or _checksum(kind, data) != checksum:
                    return
                yield kind, data, begins + at
                at += CHUNK.size + length
            begins += BLOCK


class LogWriter:
    """Appends records to a log from byte `end` on, cutting off what is there."""

    def __init__(self, path: Path, end: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._end = end
        if end < len(HEADER):
            self._end = 0
        # a torn record would hide from readers all that is appended after it
        os.ftruncate(self._fd, self._end)
        if self._end == 0:
            self._write(HEADER)

    def append(self, records: Iterable[bytes]) -> None:
        """Write the records with one call; on OSError the log is as it was before."""
        out = bytearray()
        for record in records:
            _frame(record, self._end + len(out), out)
        self._write(bytes(out))

    def sync(self) -> None:
        """Return when what was appended survives a loss of power."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def _write(self, data: bytes) -> None:
        write_at(self._fd, data, self._end)
        self._end += len(data)


def _frame(record: bytes, at: int, out: bytearray) -> None:
    """Add the chunks of a record to `out`, whose end in the file is at byte `at`."""
    if CHUNK.size + len(record) <= BLOCK - at % BLOCK:  # as nearly all do
        out += CHUNK.pack(zlib.crc32(record, _OF_WHOLE), len(record), WHOLE)
        out += record
        return
    first = True
    while True:
        left = BLOCK - at % BLOCK
        # no chunk's head crosses a block: the rest of this one is zeros (LevelDB's log format)
        if left < CHUNK.size:
            out += bytes(left)
            at += left
            left = BLOCK
        data, record = record[: left - CHUNK.size], record[left - CHUNK.size :]
        if first:
            kind = FIRST if record else WHOLE
        else:
            kind = MIDDLE if record else LAST
        out += CHUNK.pack(_checksum(kind, data), len(data), kind) + data
        at += CHUNK.size + len(data)
        if not record:
            return
        first = False


def _checksum(kind: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(bytes([kind])))


_OF_WHOLE = zlib.crc32(bytes([WHOLE]))
