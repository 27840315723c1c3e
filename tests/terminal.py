"""A terminal with a process on it, as pyte shows it."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import termios
from collections.abc import Callable

import pyte

from .warm_python import StartedPython

# So few characters are read at once that a test that looks at half a drawing fails on a quiet machine too.
CHARACTERS = 7


class Terminal:
    """A process on a pty, and what its window shows."""

    def __init__(self, master: int, process: StartedPython, columns: int, rows: int, *, name: str) -> None:
        """`name` is that of the other end, which the process has."""
        self.process = process
        self._master, self.name = master, name
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.Stream(self._screen)
        self._rows: list[str] = []
        self.raw = ""

    def read_until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """The lines of the window once a condition holds; one without the last line meets half a drawing."""
        while not condition(self.lines):
            self._read()
        return self.lines

    def drawn_again(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """The same once the next drawing has begun, which clears the window from the table on."""
        length = len(self.raw)
        while "\x1b[J" not in self.raw[length:]:
            self._read()
        return self.read_until(condition)

    def resize(self, columns: int, rows: int) -> None:
        termios.tcsetwinsize(self._master, (rows, columns))
        self._screen.resize(rows, columns)

    def hold(self, holds: bool = True) -> None:
        """Ctrl-S: it takes nothing; or Ctrl-Q."""
        other = os.open(self.name, os.O_RDWR | os.O_NOCTTY)
        termios.tcflow(other, termios.TCOOFF if holds else termios.TCOON)
        os.close(other)

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.write(self._master, b"\x03")

    def read_what_is_there(self) -> str:
        """All that the terminal has taken so far."""
        while select.select([self._master], [], [], 0)[0]:
            self._read()
        return self.raw

    def read_to_end(self) -> list[str]:
        with contextlib.suppress(EOFError):
            while True:
                self._read()
        self.process.wait()
        return self.lines

    @property
    def lines(self) -> list[str]:
        """Those with something in them; asked at every few characters, so only what has changed is read."""
        screen = self._screen
        self._rows = (self._rows + [""] * screen.lines)[: screen.lines]
        for row in screen.dirty:
            if row < screen.lines:
                cells = screen.buffer[row]
                self._rows[row] = "".join(cells[column].data for column in range(screen.columns)).rstrip()
        screen.dirty.clear()
        return list(filter(None, self._rows))

    @property
    def scrolled(self) -> list[str]:
        """The lines that have left the window at its top."""
        return [
            "".join(c.data for _, c in sorted(line.items())).rstrip() for line in self._screen.history.top
        ]

    def _read(self) -> None:
        """EOFError where nobody has the terminal open any more."""
        assert select.select([self._master], [], [], 600)[0], "nothing is drawn"
        try:
            text = self._decoder.decode(os.read(self._master, CHARACTERS))
        except OSError as error:
            raise EOFError from error
        self.raw += text
        self._stream.feed(text)
