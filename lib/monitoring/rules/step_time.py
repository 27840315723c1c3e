"""Steps take much longer than they did.

Method: Hampel's identifier (1974) with a hold: the median time of the last NEWEST step records is above
LIMIT times the median of all that the attempt had before them, and beyond six robust standard deviations of
these. A single slow step, as one behind a checkpoint, is none of it. Where a training logs no time per
step, the inverse of its throughput counts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number
from monitoring.rules._measures.robust import median, spread

EVENTS = ("start", "step")

# Step records at an attempt's begin that do not count: compilers, caches and clocks warm up.
WARM_UP = 10

# Step records that are compared with (those of a slow time do not join them), and how many there must be.
WINDOW = 500
FEWEST = 40

# The median of these is computed again after so many of them.
EVERY = 20

# Step records that are judged together.
NEWEST = 10

# Robust standard deviations that a median must be away as well.
SURE = 6.0


@dataclass(frozen=True)
class Options:
    """When steps are slow."""

    limit: float = 1.5
    """Times the median step time that a step may take."""

    def __post_init__(self) -> None:
        if self.limit <= 1:
            raise ValueError("limit is at most 1")


class Rule:
    """Warns while the last NEWEST step records are slow together, by their median."""

    severity: Severity = "warning"
    hold = 0.0

    def __init__(self, options: Options) -> None:
        self._limit = options.limit
        self._message = f"steps take more than {options.limit:g} times as long as before"
        self._begin()

    def _begin(self) -> None:
        self._skip = WARM_UP
        self._usual: deque[float] = deque(maxlen=WINDOW)
        self._newest: deque[float] = deque(maxlen=NEWEST)
        self._middle, self._noise = math.inf, 0.0
        self._taken = 0
        self._is_slow = False

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") == "start":
            self._begin()
            return ()
        seconds = _seconds(record)
        if seconds is None:
            return ()
        if self._skip:
            self._skip -= 1
            return ()
        if len(self._newest) == NEWEST:
            self._note_usual(self._newest[0])
        self._newest.append(seconds)
        if self._middle == math.inf:
            return ()
        if (
            not self._is_slow and max(self._newest) <= self._limit * self._middle
        ):  # nearly always: no median for these
            return [Finding(False, self._message, value=seconds)]
        now = median(self._newest)
        # what is over must be clearly so, that an alert at the limit does not come and go
        slower = now / self._middle
        if self._is_slow:
            self._is_slow = slower > (1 + self._limit) / 2
        else:
            self._is_slow = slower > self._limit and now - self._middle > SURE * self._noise
        return [Finding(self._is_slow, self._message, value=now)]

    def _note_usual(self, seconds: float) -> None:
        """Of slow steps that last, the usual ones are still those before them."""
        if seconds > self._limit * self._middle:
            return
        self._usual.append(seconds)
        self._taken += 1
        if len(self._usual) >= FEWEST and self._taken % EVERY == 0:
            self._middle = median(self._usual)
            self._noise = spread(self._usual, self._middle)


def _seconds(record: Record) -> float | None:
    seconds = number(record, "sec_per_step")
    if seconds is None:
        rate = number(record, "samples_per_sec")
        return 1 / rate if rate else None
    return seconds
