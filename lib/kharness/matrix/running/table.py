"""The live view: a table of the running cells over a line of totals, redrawn in place on a terminal.

What is said meanwhile stays above it. The table never wraps and never scrolls: it takes the columns and rows
that the window has at that moment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from kharness.matrix.running.unblocked import Unblocked

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Of columns, the narrower the window the fewer: from this width on each is shown.
WIDTHS = {"step": 30, "loss": 44, "ETA": 56, "steps/s": 64, "on": 76}
NARROWEST_NAME = 12


Row = tuple[str, Mapping[str, str]]
"""The name of a running cell, and its text in each column of WIDTHS."""


class LiveTable:
    """On a terminal. Every change is one write, so that nothing flickers; no cell waits until it is taken."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._stream = stream
        self._output = Unblocked(stream)
        self._console = Console(file=stream, force_terminal=True, highlight=False, legacy_windows=False)
        self._drawn: list[str] = []
        self._size = (0, 0)

    def say(self, line: str) -> None:
        """Print a line that stays above the table."""
        self._write(f"{self._wiping()}{line}\n{self._frame()}")

    def draw(self, rows: Sequence[Row], totals: str) -> None:
        """Replace the table, over a line of totals."""
        if not self._output.is_free:
            return
        size = _window(self._stream)
        lines = _lines(self._console, rows, totals, *size)
        if lines != self._drawn or size != self._size:
            wiping = self._wiping()
            self._drawn, self._size = lines, size
            self._write(wiping + self._frame())

    def close(self) -> None:
        """Take the table away."""
        self._write(self._wiping())
        self._drawn = []
        self._output.close()

    def _frame(self) -> str:
        # The cursor rests below the table: what is printed after a SIGKILL begins on a line of its own.
        return "".join(f"{line}\n" for line in self._drawn)

    def _wiping(self) -> str:
        """Go to where the table begins, and clear from there on."""
        if not self._drawn:
            return ""
        # A window that became lower has scrolled the upper lines out; those are beyond reach.
        up = min(len(self._drawn), _window(self._stream)[1] - 1)
        return "\r" + (f"\x1b[{up}A" if up > 0 else "") + "\x1b[J"

    def _write(self, text: str) -> None:
        if text:
            self._output.write(text.encode(self._stream.encoding, errors="backslashreplace"))
            self._output.flush()


def duration(seconds: float) -> str:
    """4.2 s, 1:05, 2:00:00."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _window(stream: TextIO) -> tuple[int, int]:
    """Columns and rows; read each time, for a window may be resized. 0 is a terminal that does not know."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:  # it was closed meanwhile
        return 80, 24
    return size.columns or 80, size.lines or 24


def _lines(console: Console, rows: Sequence[Row], totals: str, columns: int, height: int) -> list[str]:
    # The last column stays free: a character there makes some terminals wrap.
    width = max(1, columns - 1)
    room = height - 4  # a header, the totals, the cursor's line, and one of what was said last
    shown = rows if len(rows) <= room else rows[: max(0, room - 1)]
    bottom = [_cut(totals, width)]
    if len(shown) < len(rows) and height > 2:
        bottom.insert(0, _cut(f"… and {len(rows) - len(shown)} more", width))
    if not shown:
        return bottom
    with console.capture() as capture:
        console.print(_table(shown, width), width=width, no_wrap=True, overflow="ellipsis", crop=True)
    return [*(line.rstrip() for line in capture.get().rstrip("\n").split("\n")), *bottom]


def _table(rows: Sequence[Row], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    names = [name for name, least in WIDTHS.items() if width >= least]
    cells = [[texts[name] for name in names] for _, texts in rows]
    used = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    # Wide numbers take room from the names, but not all of it.
    while names and width - sum(used) - 2 * len(used) < NARROWEST_NAME:
        names.pop()
        used.pop()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("cell", no_wrap=True, overflow="ellipsis", max_width=width - sum(used) - 2 * len(used))
    for name, size in zip(names, used, strict=True):
        table.add_column(name, no_wrap=True, justify="right", width=size)
    for (name, _), values in zip(rows, cells, strict=True):
        table.add_row(Text(name), *map(Text, values[: len(names)]))
    return table


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"
