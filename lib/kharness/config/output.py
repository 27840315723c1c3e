"""Print so that a closed or full output never stops a command."""

from __future__ import annotations

import errno
import io
import os
import stat
from contextlib import contextmanager

from monitoring.errors import columns_of, folded, is_full, written_out

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from collections.abc import Iterator
    from typing import Any, TextIO

# The reader of a pipe has exited (`… | head`), or the terminal is closed.
_NOBODY_READS = (errno.EPIPE, errno.EIO)


class LastingFile(io.FileIO):
    """A file that takes writes even when its reader is gone or the disk is full: the text is dropped."""

    def __init__(self, descriptor: int, *, drop_all: bool = False) -> None:
        """With `drop_all` nothing raises; else what is neither of the two does."""
        super().__init__(descriptor, "wb", closefd=False)
        self.reader_is_gone = False
        self.lost: OSError | None = None
        """Why something is missing in a file that somebody meant to keep."""
        self._drop_all = drop_all

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError as error:
            self._drop(error)
            written = None
        return memoryview(data).nbytes if written is None else written

    def _drop(self, error: OSError) -> None:
        if is_full(error) or stat.S_ISREG(os.fstat(self.fileno()).st_mode):
            self.lost = error
        elif error.errno in _NOBODY_READS:
            self.reader_is_gone = True
            # What this process starts from now on must not stumble over it either.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
        elif not self._drop_all:
            raise error


def wrapped(line: str) -> str:
    """A line as several of at most 79 columns, the further ones indented; words stay whole."""
    import textwrap

    return textwrap.fill(line, 79, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def printable(value: str) -> str:
    """A value on one line, cut where it is long."""
    shown = value if value and value.isprintable() else ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"


def say(text: str) -> None:
    """Print `text`, fitted to the terminal, and flush."""
    print(fitted(text), flush=True)


@contextmanager
def said_if_slow(line: str, after: float = 5.0) -> Iterator[None]:
    """Print a line once what is done within it has taken that many seconds."""
    import threading

    timer = threading.Timer(after, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def fitted(text: str) -> str:
    """Text for standard output: on a terminal no line is wider than it, elsewhere lines stay as they are.

    What controls a terminal is written out.
    """
    import sys

    text = "\n".join(map(written_out, text.split("\n")))
    columns = columns_of(sys.stdout)
    return in_columns(text, columns) if columns else text


def in_columns(text: str, columns: int) -> str:
    """Lines are wrapped, further ones indented by two more; words stay whole.

    Of a table, which has a line of dashes below its header, the last columns are left out and named below it.
    """
    lines = text.split("\n")
    for number, line in reversed(list(enumerate(lines))):
        if len(line) > columns and number and not line.strip("- "):
            end = next((at for at in range(number, len(lines)) if not lines[at]), len(lines))
            lines[number - 1 : end] = _narrow_table(lines[number - 1 : end], columns)
    return "\n".join(part for line in lines for part in folded(line, columns))


def _narrow_table(lines: list[str], columns: int) -> list[str]:
    """Header, dashes and rows, with as many columns as fit, and the names of the others."""
    import re

    places = [found.span() for found in re.finditer("-+", lines[1])]
    kept = [end for _, end in places if end <= columns] or [places[0][1]]
    left = [lines[0][start:end].strip() for start, end in places[len(kept) :]]
    which = f"column{'s' * (len(left) > 1)} {', '.join(left)}"
    return [*(line[: kept[-1]].rstrip() for line in lines), f"no room for the {which}"]


def lasting_text(stream: TextIO | None, *, drop_all: bool = False) -> TextIO:
    """A stream that writes to the same place and lasts; the same one if it has no file."""
    if stream is None:  # it was closed before this process began, as by `>&-`
        return open(os.devnull, "w")
    try:
        raw = LastingFile(stream.fileno(), drop_all=drop_all)
    except (OSError, ValueError):  # it only collects text, or is closed
        return stream
    stream.flush()
    unbuffered = bool(getattr(stream, "write_through", False))
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # as CPython does
        encoding=stream.encoding,
        # A value that the terminal's encoding lacks is no reason to stop either.
        errors="backslashreplace",
        line_buffering=bool(getattr(stream, "line_buffering", False)),
        write_through=unbuffered,
    )


def lost_text(stream: TextIO) -> OSError | None:
    """Why something that was printed is missing where it was to be kept; None if nothing is."""
    raw = _raw(stream)
    return raw.lost if raw else None


def reader_is_gone(stream: TextIO) -> bool:
    """Return whether a write has shown that output is no longer read."""
    raw = _raw(stream)
    return raw is not None and raw.reader_is_gone


def _raw(stream: TextIO) -> LastingFile | None:
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, LastingFile) else None
