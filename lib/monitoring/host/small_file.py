"""Reads small files of /proc and /sys as text, and opens files that may be something else."""

from __future__ import annotations

import os

# Bytes that nearly all of these stay below, and that all do; one read gets a state of one moment.
# Room for a MiB is mapped and given back for each read, which takes up to ten times as long as the read.
_FEW_BYTES = 1 << 14
_MOST_BYTES = 1 << 20


def without_waiting(path: str, flags: int) -> int:
    """Open a file as `open` does with it as its opener: a pipe has perhaps no writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def text_of(path: str | os.PathLike[str]) -> str:
    """Return the content; empty if the file is missing or unreadable.

    In a third of the time of Path.read_text: an agent reads a dozen of them each second.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        content = os.read(fd, _FEW_BYTES)
        if len(content) == _FEW_BYTES:
            content = os.pread(fd, _MOST_BYTES, 0)
        return content.decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
