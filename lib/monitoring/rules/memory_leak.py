"""Memory grows and grows.

Method: the time of a window is cut into BINS equal parts, and the lowest value of each part is kept: memory
that goes up and down, as with garbage collection or caches that are refilled, has a floor that stays.
Memory leaks when at least MOST_STEPS of the floors lie above the one before (the difference-sign test of G.
H. Moore and W. A. Wallis, 1943: of values in random order 3 of 10,000 do) and the last is LIMIT percent
above the first. Watched are the training process' memory, its processes' together, and what PyTorch has
allocated on the GPU.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number

EVENTS = ("start", "step", "system")

# Parts of a window.
BINS = 10

# Of the BINS - 1 differences between neighbours, how many must be rises.
MOST_STEPS = 8

# Field -> what it is in messages, and the megabytes that one of it is.
WATCHED = {
    "cpu_mem_rss_mb": ("the training process", 1.0),
    "trainer_memory_gb": ("the training's processes together", 1e3),
    "gpu_mem_allocated": ("the GPU, by PyTorch's allocator", 1e3),
}

# A floor that rises by less over a window is none, whatever share of a small process that is.
FEWEST_MB = 50.0


@dataclass(frozen=True)
class Options:
    """When memory leaks."""

    limit: float = 10.0
    """Percent by which the floor rises in a window."""
    seconds: float = 1800.0
    """Width of the window."""

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError("seconds is not above 0")


@dataclass
class _Floors:
    """The lowest values of one field, part by part."""

    done: deque[float] = field(default_factory=lambda: deque(maxlen=BINS))
    until: float = -math.inf
    """When the current part ends."""
    lowest: float = math.inf

    def add(self, time: float, value: float, width: float) -> bool:
        """Take a value; True if it ends a part."""
        ended = False
        if time >= self.until or time < self.until - 2 * width:  # or the clock was set back
            ended = self.lowest != math.inf
            if ended:
                self.done.append(self.lowest)
            self.until, self.lowest = time + width, math.inf
        self.lowest = min(self.lowest, value)
        return ended

    def rise(self) -> float | None:
        """Percent over the window, 0 for one that is no trend; None before there is a full window."""
        if len(self.done) < BINS:
            return None
        floors = list(self.done)
        rises = sum(after > before for before, after in itertools.pairwise(floors))
        gained = floors[-1] - floors[0]
        return 100 * gained / floors[0] if rises >= MOST_STEPS and floors[0] > 0 else 0.0


class Rule:
    """Warns of each kind of memory whose floor rises through a window, until one in which it does not."""

    severity: Severity = "warning"
    hold = 0.0

    def __init__(self, options: Options) -> None:
        self._limit = options.limit
        self._part = options.seconds / BINS
        self._floors = {name: _Floors() for name in WATCHED}

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") == "start":
            self._floors = {name: _Floors() for name in WATCHED}
            return ()
        time = number(record, "time")
        found = []
        for name, (what, megabytes) in WATCHED.items():
            value = number(record, name)
            if value is None or time is None:
                continue
            floors = self._floors[name]
            if floors.add(time, value, self._part) and (rise := floors.rise()) is not None:
                gained = megabytes * (floors.done[-1] - floors.done[0])
                leaks = rise > self._limit and gained > FEWEST_MB
                found.append(Finding(leaks, f"memory of {what} grows and grows", name, rise))
        return found
