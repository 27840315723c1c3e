"""Pictures that records name, as trackers show them: read from the run directory when they are delivered.

A picture that cannot be shown is a line of the agent's log: the record's points are delivered all the same.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from monitoring.host.name import in_file_names
from monitoring.host.small_file import without_waiting
from monitoring.journal.records import PICTURES, Fields, Record, seq_of
from monitoring.trackers import event_of, prefix_of

# Bytes of all pictures of one record together: a follower holds them in memory.
MOST_BYTES = 16 * 2**20

# A PNG begins with its signature and the chunk IHDR: width, height, bits of a channel, kind of pixels and so
# on. It ends with the empty chunk IEND (w3.org/TR/png-3, 5 and 11.2).
SIGNATURE = b"\x89PNG\r\n\x1a\n"
HEADER = struct.Struct(">8sI4sIIBB")
END = b"\0\0\0\0IEND\xaeB`\x82"

# Kind of pixels -> channels: gray, RGB, palette (of RGB), gray and alpha, RGBA.
CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}


@dataclass(frozen=True)
class TrackerPicture:
    """One picture of one record, a PNG."""

    name: str
    """Its name in trackers: that in the record, of an epoch record after `epoch/`."""
    content: bytes
    width: int
    height: int
    channels: int

    @property
    def file_name(self) -> str:
        """Its name, as far as it can stand in a file's name."""
        return in_file_names(self.name)


def pictures_of(
    record: Record, fields: Fields, directory: Path, *, taken: Collection[str] = ()
) -> list[TrackerPicture]:
    """Return the pictures of a record that can be shown; the log says why others cannot.

    None has the name of a point of the record, nor one of those that are `taken`.
    """
    if not fields.has_pictures:
        return []
    return list(_found(record, {*fields.names, *taken}, directory))


def _found(record: Record, taken: Collection[str], directory: Path) -> Iterator[TrackerPicture]:
    named: Mapping[str, object] = record[PICTURES]  # type: ignore[assignment]
    left = MOST_BYTES
    for name, file in named.items():
        try:
            content = _content(directory, file, most=left)
            width, height, channels = _shape(content)
        except (OSError, ValueError) as error:
            warn(f"picture {name!r} of record {seq_of(record)} is not shown: {_reason(error)}")
            continue
        left -= len(content)
        shown = prefix_of(event_of(record)) + name
        shown = f"{shown}_picture" if not name or name in taken else shown
        yield TrackerPicture(shown, content, width, height, channels)


def _content(directory: Path, file: object, *, most: int) -> bytes:
    """Return the content of a file of the run directory; ValueError or OSError if there is none to show."""
    if not isinstance(file, str) or not file or "\0" in file:
        raise ValueError(f"{file!r} names no file")
    path, home = directory / file, os.path.realpath(directory)
    if PurePath(file).is_absolute() or not os.path.realpath(path).startswith(home + os.sep):
        raise ValueError(f"{file} is not in the run directory")
    with open(path, "rb", opener=without_waiting) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ValueError(f"{file} is not a regular file")
        content = opened.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{file} is too large: pictures of a record have {MOST_BYTES >> 20} MiB at most")
    return content


def _shape(content: bytes) -> tuple[int, int, int]:
    """Width, height and channels of a PNG; ValueError of anything else, and of one that is not complete."""
    if len(content) < HEADER.size or not content.endswith(END):
        raise ValueError("it is not a complete PNG")
    signature, _, chunk, width, height, _, kind = HEADER.unpack_from(content)
    if signature != SIGNATURE or chunk != b"IHDR" or kind not in CHANNELS:
        raise ValueError("it is not a PNG")
    return width, height, CHANNELS[kind]


def _reason(error: Exception) -> str:
    return f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)


def warn(message: str) -> None:
    """Write a line of the agent's log."""
    import logging  # here: the trainer, which checks the trackers' packages, does without it

    logging.getLogger("monitoring.trackers").warning(message)
