"""Opens files of a run directory by a plain name in it; no link is followed, no pipe waited for."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from monitoring.journal.files import PROFILER

# Bytes that one look at a log takes, at most, and of a picture.
LOG_BYTES = 2**18
MOST_BYTES = 64 * 2**20

LOG = ".log"
PICTURE = ".png"
PNG = b"\x89PNG\r\n\x1a\n"


class NoSuchFile(LookupError):
    """There is no plain file of this name in the run directory."""


@dataclass(frozen=True)
class LogPart:
    """A stretch of a log."""

    text: str
    begins: int
    """Byte offset of its first character."""
    ends: int
    size: int


def names_in(directory: Path, ending: str) -> list[str]:
    """Return the plain files of a run directory that end so, the longest first."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(ending) and entry.is_file(follow_symlinks=False):
                found.append((entry.stat(follow_symlinks=False).st_size, entry.name))
    return [name for _, name in sorted(found, reverse=True)]


def read_log(directory: Path, name: str, *, before: int | None = None, after: int | None = None) -> LogPart:
    """Return whole lines of a log: its end, or those before an offset, or those after one."""
    if not name.endswith(LOG):
        raise NoSuchFile(name)
    fd = _open(directory, (name,))
    try:
        size = os.fstat(fd).st_size
        if after is not None and after <= size:
            begins, ends = after, min(size, after + LOG_BYTES)
        else:
            ends = size if before is None else max(0, min(before, size))
            begins = max(0, ends - LOG_BYTES)
        data = os.pread(fd, ends - begins, begins)
    finally:
        os.close(fd)
    if begins and after is None:  # from the middle of a line on
        cut = data.find(b"\n") + 1
        data, begins = data[cut:], begins + cut
    return LogPart(data.decode("utf-8", "replace"), begins, begins + len(data), size)


def find_in_log(directory: Path, name: str, wanted: str, *, most: int = 500) -> list[str]:
    """Return the last lines of a log that contain a text, whatever its letters' case."""
    if not name.endswith(LOG):
        raise NoSuchFile(name)
    fd = _open(directory, (name,))
    with os.fdopen(fd, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - MOST_BYTES))
        small = wanted.lower()
        lines = (line.decode("utf-8", "replace").rstrip("\n") for line in file)
        return [line for line in lines if small in line.lower()][-most:]


def read_picture(directory: Path, name: str) -> bytes:
    """Return a PNG of a run directory, or of a folder in it, such as `inspected/step3.png`."""
    parts = tuple(name.split("/"))
    if not name.endswith(PICTURE) or len(parts) > 3:
        raise NoSuchFile(name)
    fd = _open(directory, parts)
    with os.fdopen(fd, "rb") as file:
        data = file.read(MOST_BYTES)
    if not data.startswith(PNG):
        raise NoSuchFile(name)
    return data


def open_trace(directory: Path, name: str) -> BinaryIO:
    """Open a trace of the profiler."""
    return os.fdopen(_open(directory, (PROFILER, name)), "rb")


def pictures_in(directory: Path) -> Iterator[str]:
    """Yield the pictures of a run directory and of the folders in it."""
    with os.scandir(directory) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.name.startswith("."):
            continue
        if entry.name.endswith(PICTURE) and entry.is_file(follow_symlinks=False):
            yield entry.name
        elif entry.is_dir(follow_symlinks=False):
            yield from (f"{entry.name}/{name}" for name in sorted(names_in(Path(entry.path), PICTURE)))


def _open(directory: Path, parts: tuple[str, ...]) -> int:
    """Return a descriptor of a plain file; each part is opened as what it should be, no link followed."""
    if any(not part or part.startswith(".") or "\0" in part or "/" in part for part in parts):
        raise NoSuchFile("/".join(parts))
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    opened = [os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for part in parts[:-1]:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        fd = os.open(parts[-1], flags, dir_fd=opened[-1])
    except (OSError, ValueError) as error:
        raise NoSuchFile("/".join(parts)) from error
    finally:
        for one in opened:
            os.close(one)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NoSuchFile("/".join(parts))
    return fd
