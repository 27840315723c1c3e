"""One line about this machine: how busy its processors are, now and lately, its memory and its disk."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.terminal.display.cells import Line, Span
from monitoring.terminal.display.graphs import graph_rows

if TYPE_CHECKING:
    from monitoring.samplers.machine import MachineSample, MachineSampler

# Pictures whose processor time is shown, at most.
LATELY = 120

# Columns that processor time takes at least; before that the disk is left out.
FEWEST = 4

GIB_A_GB = 1e9 / 2**30


class HostLine:
    """Read at each picture but the first, which waits for nothing that is imported."""

    def __init__(self) -> None:
        self._busy: deque[float | None] = deque(maxlen=LATELY)
        self._sampler: MachineSampler | None = None
        self._sample: MachineSample | None = None

    def look(self) -> None:
        """Sample the machine; the first look only begins to measure processor time."""
        if self._sampler is None:
            from monitoring.samplers.machine import MachineSampler

            self._sampler = MachineSampler(Path.cwd())
        self._sample = self._sampler.sample()
        if self._sample.cpu_usage_percent is not None:
            self._busy.append(self._sample.cpu_usage_percent)

    def line(self, width: int) -> Line:
        """What was read; the load is that of 1, 5 and 15 minutes, the disk that of the current folder."""
        if self._sample is None:
            return [Span(" host", "dim")]
        busy = f"{self._busy[-1]:3.0f}%" if self._busy else "  –"
        facts = [("RAM", _memory(self._sample)), ("load", _load()), ("disk", _disk(self._sample))]
        lengths = [len(f"  {name} {text}") for name, text in facts]
        room = width - len(f" host CPU {busy}  ") - sum(lengths)
        if room < FEWEST:
            room += lengths[-1]
            facts.pop()
        room = max(FEWEST, min(room, LATELY))
        lately = graph_rows(list(self._busy)[-room:], room, 1, 0, 100)[0]
        line = [Span(" host CPU ", "dim"), Span(f"{busy} "), Span(lately, "util")]
        for name, text in facts:
            line += [Span(f"  {name} ", "dim"), Span(text)]
        return line


def _memory(sample: MachineSample) -> str:
    used, total = sample.memory_used_gb, sample.memory_total_gb
    if used is None or total is None or sample.memory_usage_percent is None:
        return "–"
    return f"{used * GIB_A_GB:.1f}/{total * GIB_A_GB:.1f} GiB {sample.memory_usage_percent:.0f}%"


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _disk(sample: MachineSample) -> str:
    free = sample.disk_free_gb
    return "–" if free is None else f"{free:.0f} GB free"
