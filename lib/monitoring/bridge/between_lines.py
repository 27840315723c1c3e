"""The stderr of a bridge whose program prints into the same file: in a matrix, both into output.log."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from monitoring.bridge.sources.output import is_at_line_start
from monitoring.errors import fitting


@contextlib.contextmanager
def saying_between_lines(output: Path, columns: int = 0) -> Iterator[None]:
    """Have what is said wait until a line has ended: in the middle of one it would cut off its number.

    It is in lines of at most `columns`, if that is not 0.
    """
    stderr = sys.stderr
    try:
        is_shared = os.path.samestat(os.fstat(stderr.fileno()), output.stat())
    except (OSError, ValueError):  # there is no output yet, or nothing is said anywhere
        is_shared = False
    if not is_shared:
        yield
        return
    sys.stderr = waiting = _BetweenLines(output, columns)
    try:
        yield
    finally:
        sys.stderr = stderr
        with contextlib.suppress(OSError):
            print(end="".join(waiting.said), file=stderr, flush=True)


class _BetweenLines(io.TextIOBase):
    """Lines that are said, until the output takes them."""

    def __init__(self, output: Path, columns: int) -> None:
        self._output, self._columns = output, columns
        self.said: list[str] = []

    def write(self, text: str, /) -> int:
        self.said.append(fitting(text, self._columns))
        return len(text)

    def flush(self) -> None:
        if self.said and is_at_line_start(self._output):
            text = "".join(self.said).encode("utf-8", "replace")
            self.said.clear()
            os.write(2, text)
