"""One line about a machine: how busy its processors are, now and lately, its memory and its disk."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitoring.terminal.display.cells import Line, Span
from monitoring.terminal.display.graphs import graph_rows

if TYPE_CHECKING:
    from monitoring.journal.tail import RecordTail
    from monitoring.samplers.machine import MachineSample, MachineSampler

# Pictures whose processor time is shown, at most.
LATELY = 120

# Columns that processor time takes at least; before that the disk is left out.
FEWEST = 4

GIB_A_GB = 1e9 / 2**30


# How much of a long system_stats.jsonl is read at first: more than LATELY samples.
LAST_BYTES = 2**18


class HostLine:
    """A machine's line, read at each picture but the first, which must not wait for imports."""

    def __init__(self, journal: Path | None = None) -> None:
        """`journal` has the samples of another machine, as a run records them; without it, it is this one."""
        self.journal = journal
        self._tail: RecordTail | None = None
        self._busy: deque[float | None] = deque(maxlen=LATELY)
        self._sampler: MachineSampler | None = None
        self._sample: MachineSample | None = None

    def look(self) -> None:
        """Take what is new; the first look at this machine only begins to measure processor time."""
        for sample in self._sampled() if self.journal is None else self._recorded(self.journal):
            self._sample = sample
            if sample.cpu_usage_percent is not None:
                self._busy.append(sample.cpu_usage_percent)

    def _sampled(self) -> Iterator[MachineSample]:
        if self._sampler is None:
            from monitoring.samplers.machine import MachineSampler

            self._sampler = MachineSampler(Path.cwd())
        yield self._sampler.sample()

    def _recorded(self, journal: Path) -> Iterator[MachineSample]:
        from monitoring.journal.tail import RecordTail
        from monitoring.samplers.machine import MachineSample

        self._tail = self._tail or RecordTail(journal, last_bytes=LAST_BYTES)
        for record in self._tail.new():
            values: dict[str, Any] = {name: record.get(name) for name in MachineSample._fields}
            yield MachineSample(**values)

    def line(self, width: int) -> Line:
        """Return the line; load is that of 1, 5 and 15 minutes, the disk that of the current folder.

        Of another machine the load is that of 1 minute, and the disk that of the run.
        """
        if self._sample is None:
            return [Span(" host", "dim")]
        busy = f"{self._busy[-1]:3.0f}%" if self._busy else "  –"
        facts = [
            ("RAM", _memory(self._sample)),
            ("load", self._load(self._sample)),
            ("disk", _disk(self._sample)),
        ]
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

    def _load(self, sample: MachineSample) -> str:
        recorded = sample.load_average_1m
        loads = os.getloadavg() if self.journal is None else () if recorded is None else (recorded,)
        return " ".join(f"{value:.2f}" for value in loads) or "–"


def _memory(sample: MachineSample) -> str:
    used, total = sample.memory_used_gb, sample.memory_total_gb
    if used is None or total is None or sample.memory_usage_percent is None:
        return "–"
    return f"{used * GIB_A_GB:.1f}/{total * GIB_A_GB:.1f} GiB {sample.memory_usage_percent:.0f}%"


def _disk(sample: MachineSample) -> str:
    free = sample.disk_free_gb
    return "–" if free is None else f"{free:.0f} GB free"
