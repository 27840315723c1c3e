"""What a training prints: of use to whoever looks, and never a reason to stop."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def lasting_output() -> Iterator[None]:
    """Within it, printing never fails: what cannot be written is dropped.

    The terminal may be closed, the reader of a pipe be gone (`… | head`), the disk below output.log be full:
    the journal has all that counts, and the training goes on.
    """
    before = sys.stdout
    try:
        descriptor = before.fileno()
    except OSError:  # no file is behind it
        yield
        return
    before.flush()
    lasting = io.TextIOWrapper(
        io.BufferedWriter(_Lasting(descriptor, "wb", closefd=False)),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.isatty(),
    )
    sys.stdout = lasting
    try:
        yield
    finally:
        lasting.flush()
        sys.stdout = before


class _Lasting(io.FileIO):
    """A file on which every write succeeds."""

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written
