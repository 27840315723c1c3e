"""Output that never blocks the runner: not by a stopped terminal (Ctrl-S), nor by an idle reader of a
pipe.
"""

from __future__ import annotations

import os
import select
from typing import TextIO


class Unblocked:
    """Writes to a stream without blocking; text it does not accept yet waits here."""

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._stream = stream
        self._terminal = _opened_again(stream) if stream.isatty() else None
        self._waiting = bytearray()  # megabytes of a long line leave it at the front, which copies no rest
        self._is_closed = False

    @property
    def is_free(self) -> bool:
        """Whether all was taken, and more would be."""
        self.flush()
        return not self._waiting and bool(select.select([], [self._stream], [], 0)[1])

    def write(self, data: bytes) -> None:
        """Take what is to be shown; `flush` shows it, and after `close` it is shown at once."""
        if self._is_closed:
            self._hand_over(data)
        else:
            self._waiting += data

    def flush(self) -> None:
        """Hand over what is taken."""
        while self._waiting and select.select([], [self._stream], [], 0)[1]:
            # A pipe that has room has room for so much; more may block all the same (select(2), pipe(7)).
            piece = bytes(self._waiting[: select.PIPE_BUF])
            written = len(piece)
            if self._terminal is None:
                self._hand_over(piece)
            else:
                try:
                    written = os.write(self._terminal, piece)
                except BlockingIOError:
                    return
                except OSError:  # closed
                    self._hand_over(piece)
            del self._waiting[:written]

    def close(self) -> None:
        """Write the remaining output, when all work is done."""
        self._is_closed = True
        self._hand_over(bytes(self._waiting))
        self._waiting.clear()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None

    def _hand_over(self, data: bytes) -> None:
        # The stream knows what a reader that is gone, a closed terminal and a full disk mean.
        self._stream.buffer.write(data)
        self._stream.flush()


def _opened_again(stream: TextIO) -> int | None:
    """A terminal as a file of our own: others who have it open keep writes that wait."""
    try:
        return os.open(os.ttyname(stream.fileno()), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:  # of another container
        return None
