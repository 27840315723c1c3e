"""The framing of TensorBoard's event files: each event with its length, and a checksum of both.

TensorFlow's TFRecord format (tensorflow.org/tutorials/load_data/tfrecord): CRC-32C, rotated and shifted so
that the checksum of a checksum is not trivial.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

# Length of an event, the length's checksum, the event, its checksum.
HEADER = struct.Struct("<QI")
LENGTH = struct.Struct("<Q")
CHECKSUM = struct.Struct("<I")

# tensorflow/core/lib/hash/crc32c.h
MASK_DELTA = 0xA282EAD8


def framed(event: bytes) -> bytes:
    """Return an encoded event as in the file."""
    return _header(len(event)) + event + CHECKSUM.pack(masked(event))


def masked(data: bytes) -> int:
    """Return the checksum as the format has it."""
    crc = _crc32c()(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def events_from_the_end(path: Path, having: bytes = b"") -> Iterator[bytes]:
    """Yield the intact events of a file, the last first; none of a file that has `having` nowhere."""
    with path.open("rb") as file:
        if having and not _has(file, having):
            return
        starts = array("Q", _starts(file))
        for number in range(len(starts) - 2, -1, -1):
            file.seek(starts[number] + HEADER.size)
            event = file.read(starts[number + 1] - starts[number] - HEADER.size - CHECKSUM.size)
            # a tear can only be at the end: the checksum of each other event is not needed
            is_last = number == len(starts) - 2
            if not is_last or CHECKSUM.unpack(file.read(CHECKSUM.size))[0] == masked(event):
                yield event


def events_after(path: Path, place: int) -> Iterator[tuple[bytes, int]]:
    """Yield each event that a file holds whole, from byte `place` on, and where it ends.

    An event whose length has another checksum ends it: what follows is no event file.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(place)
        while place + HEADER.size <= size:
            length, checksum = HEADER.unpack(file.read(HEADER.size))
            end = place + HEADER.size + length + CHECKSUM.size
            if end > size or masked(LENGTH.pack(length)) != checksum:
                return
            event = file.read(length)
            if CHECKSUM.unpack(file.read(CHECKSUM.size))[0] != masked(event):
                return
            yield event, end
            place = end


def _has(file: BinaryIO, text: bytes) -> bool:
    if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
        return False
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.rfind(text) >= 0


def _starts(file: BinaryIO) -> Iterator[int]:
    """Where each event begins that the file holds to its end, and where the last of them ends."""
    size = file.seek(0, os.SEEK_END)
    at = file.seek(0)
    while at <= size:
        yield at
        header = file.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        at += HEADER.size + LENGTH.unpack_from(header)[0] + CHECKSUM.size
        if at <= size:
            file.seek(at)


@functools.lru_cache(maxsize=4096)
def _header(length: int) -> bytes:
    return HEADER.pack(length, masked(LENGTH.pack(length)))


@functools.cache
def _crc32c() -> Callable[[bytes], int]:
    """The checksum without the mask, by the processor's own instruction where the package for that is there.

    TensorBoard's own, in Python, takes longer than all the rest of a record.
    """
    try:
        from google_crc32c import value
    except ImportError:
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as value
    found: Callable[[bytes], int] = value
    return found
