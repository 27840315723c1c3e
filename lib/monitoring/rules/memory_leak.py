"""Alert rule: memory grows and grows.

Method: the time of a window is cut into BINS equal parts, and the lowest value of each part is kept: memory
that goes up and down, as with garbage collection or caches that are refilled, has a floor that stays. Memory
leaks when at least MOST_STEPS of the floors lie above the one before (the difference-sign test of G. H.
Moore and W. A. Wallis, 1943: of values in random order 3 of 10,000 do), the last is LIMIT percent above the
first, and the later half has its share of that, unlike a cache that is nearly full. A leak that is too slow
for that in SECONDS is one by half of LIMIT in windows of two, four, eight and sixteen times as long. Watched
are the training process' memory, its processes' together, and what PyTorch has allocated on the GPU.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number

EVENTS = ("start", "step", "system")

UNIT = "%"

LOOK = "what is kept from step to step: lists of tensors, losses that are not detached, caches"

# Parts of a window.
BINS = 10

# Windows, in times of SECONDS; of those after the first half the limit counts.
WIDTHS = (1, 2, 4, 8, 16)

# Share of a window's gain that its later half (5 of 9 steps) has at the least.
LATER = 0.45

# Share of that gain by which a floor may fall below the one before: the teeth of a slow saw fall by more.
FALL = 0.25

# How many of the BINS - 1 differences between neighbors must be rises.
MOST_STEPS = 8

# Field -> its words in messages, and its unit in megabytes.
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

    limit: float
    """Percent by which the floor rises in a window."""
    seconds: float
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
        gained, later = floors[-1] - floors[0], floors[-1] - floors[(BINS - 1) // 2]
        fall = max(before - after for before, after in itertools.pairwise(floors))
        is_trend = rises >= MOST_STEPS and floors[0] > 0 and later >= LATER * gained and fall <= FALL * gained
        return 100 * gained / floors[0] if is_trend else 0.0


@dataclass
class _Growth:
    """One field: its floors by width, and the leaks in the windows that ended last."""

    floors: dict[int, _Floors] = field(default_factory=lambda: {width: _Floors() for width in WIDTHS})
    leaks: dict[int, float] = field(default_factory=dict)
    """Width of the windows through which it leaks -> percent of its rise."""


class Rule(RuleDefaults):
    """Warns of each kind of memory whose floor rises through a window, until one in which it does not."""

    def __init__(self, options: Options) -> None:
        self._limit = options.limit
        self._part = options.seconds / BINS
        self._watched = {name: _Growth() for name in WATCHED}

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") == "start":
            self._watched = {name: _Growth() for name in WATCHED}
            return ()
        time = number(record, "time")
        found = []
        for name, (what, megabytes) in WATCHED.items():
            value = number(record, name)
            if value is None or time is None:
                continue
            watched, is_news = self._watched[name], False
            for width, floors in watched.floors.items():
                part = width * self._part
                if floors.until - 2 * part <= time < floors.until:
                    # nearly always in the same part
                    if value < floors.lowest:
                        floors.lowest = value
                elif floors.add(time, value, part) and (rise := floors.rise()) is not None:
                    is_news = True
                    limit = self._limit if width == 1 else self._limit / 2
                    gained = megabytes * (floors.done[-1] - floors.done[0])
                    watched.leaks.pop(width, None)
                    if rise > limit and gained > FEWEST_MB:
                        watched.leaks[width] = rise
            if is_news:
                found.append(self._finding(name, what, watched))
        return found

    def _finding(self, name: str, what: str, watched: _Growth) -> Finding:
        width = min(watched.leaks, default=1)
        hours = width * self._part * BINS / 3600
        limit = self._limit if width == 1 else self._limit / 2
        message = f"memory of {what} grows and grows, in {hours:.2g} h by more than {limit:g}%"
        return Finding(bool(watched.leaks), message, name, watched.leaks.get(width), limit=limit)
