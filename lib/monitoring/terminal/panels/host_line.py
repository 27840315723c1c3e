"""One line about this machine: how busy its processors are, now and lately, and its memory."""

from __future__ import annotations

import os
from collections import deque

from monitoring.terminal.display.cells import Line, Span
from monitoring.terminal.display.graphs import graph_rows

# Pictures whose processor time is shown, at most.
LATELY = 120


class HostLine:
    """Read at each picture but the first: psutil takes longer to import than that may take."""

    def __init__(self) -> None:
        self._busy: deque[float | None] = deque(maxlen=LATELY)
        self._memory = ""
        self._has_begun = False

    def look(self) -> None:
        """Read processor time and memory; the first look only begins to measure."""
        import psutil

        busy = psutil.cpu_percent()
        if self._has_begun:
            self._busy.append(busy)
        self._has_begun = True
        memory = psutil.virtual_memory()
        used, total = (memory.total - memory.available) / 2**30, memory.total / 2**30
        self._memory = f"RAM {used:.1f}/{total:.1f} GiB {memory.percent:.0f}%"

    def line(self, width: int) -> Line:
        """What was read; the load is that of 1, 5 and 15 minutes."""
        if not self._memory:
            return [Span(" host", "dim")]
        busy = f"{self._busy[-1]:3.0f}%" if self._busy else "  –"
        load = " ".join(f"{value:.2f}" for value in os.getloadavg())
        room = width - len(f" host CPU {busy}   {self._memory}  load {load} ")
        room = max(4, min(room, LATELY))
        lately = graph_rows(list(self._busy)[-room:], room, 1, 0, 100)[0]
        return [
            Span(" host CPU ", "dim"),
            Span(f"{busy} "),
            Span(lately, "util"),
            Span("  " + self._memory.partition(" ")[0] + " ", "dim"),
            Span(self._memory.partition(" ")[2]),
            Span("  load ", "dim"),
            Span(load),
        ]
