"""Steps take much longer than they did, or some of them far longer than the others.

Method: medians, which a single slow step, as one behind a checkpoint, does not move. The attempt's usual
step time is the lower one of two: that of its first records, so that a slow-down which comes step by step
does not become usual, and the median of those of all its blocks of LONG records, as steps may become faster.
Above LIMIT times that are, by six of their standard errors too, the median of the last NEWEST records (of a
leap, soon) or of the last LONG ones (of a small or gradual one, later); with Hampel's identifier (1974) for
the noise. Of some slow steps among many the median knows nothing: where MANY of the last AMONG are beyond
three medians, it is the mean of all that is compared with the median. Where a training logs no time per
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

UNIT = " s"

LOOK = "data_seconds and the other phases of the step records, and at other programs on the machine"

# Step records at an attempt's begin that do not count: compilers, caches and clocks warm up.
WARM_UP = 10

# Step records that are judged together, and how often the many are.
NEWEST = 10
LONG = 50
EVERY = 10

# Blocks of LONG records that are remembered.
BLOCKS = 400

# Robust standard deviations, or errors of a median of many, that it must be away as well.
SURE = 6.0

# Of slow steps among others: medians that one takes, how many there must be, and among how many at the most.
FAR = 3.0
MANY = 8
AMONG = 200


@dataclass(frozen=True)
class Options:
    """When steps are slow."""

    limit: float = 1.5
    """Times the usual step time that a step may take."""

    def __post_init__(self) -> None:
        if self.limit <= 1:
            raise ValueError("limit is at most 1")


class Rule:
    """Warns while the last step records are slow together, and (subject `uneven`) while some of them are."""

    severity: Severity = "warning"
    hold = 0.0

    def __init__(self, options: Options) -> None:
        self._limit = options.limit
        self._message = f"steps take more than {options.limit:g} times as long as before"
        self._uneven = f"some steps take so long that the mean is over {options.limit:g} times the median"
        self._is_slow = self._is_uneven = False
        self._begin()

    def _begin(self) -> None:
        self._skip = WARM_UP
        self._last: deque[float] = deque(maxlen=AMONG)
        self._blocks: deque[tuple[float, float]] = deque(maxlen=BLOCKS)
        """Median and deviation of each."""
        self._first: tuple[float, float] | None = None
        self._usual, self._noise = math.inf, 0.0
        self._middle = math.inf
        self._taken = 0

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
        last = self._last
        last.append(seconds)
        self._taken += 1
        found = []
        if self._taken % EVERY == 0 and len(last) >= LONG:
            self._note_usual()
            found.append(self._judge_uneven())
        if self._usual < math.inf:
            found.append(self._judge_newest())
        return found

    def _judge_newest(self) -> Finding:
        last, usual = self._last, self._usual
        bound = self._limit * usual
        newest = [last[place] for place in range(-NEWEST, 0)]
        if (
            not self._is_slow and max(newest) <= bound and self._middle <= bound
        ):  # nearly always: no median for these
            return Finding(False, self._message, value=last[-1], limit=bound)
        now = median(newest)
        # what is over must be clearly so, that an alert at the limit does not come and go
        if self._is_slow:
            self._is_slow = max(now, self._middle) > (1 + self._limit) / 2 * usual
        else:
            error = 1.2533 * self._noise / math.sqrt(LONG)
            leaps = now > bound and now - usual > SURE * self._noise
            self._is_slow = leaps or (self._middle > bound and self._middle - usual > SURE * error)
        return Finding(self._is_slow, self._message, value=now, limit=bound)

    def _note_usual(self) -> None:
        """What the last LONG come to, and what is usual from now on."""
        last = [self._last[place] for place in range(-LONG, 0)]
        self._middle = median(last)
        if self._taken % LONG:
            return
        block = self._middle, spread(last, self._middle)
        self._first = self._first or block
        self._blocks.append(block)
        self._usual, self._noise = min(self._first, sorted(self._blocks)[len(self._blocks) // 2])

    def _judge_uneven(self) -> Finding:
        """Whether some steps are far slower than the others."""
        last = self._last
        middle, mean = median(last), sum(last) / len(last)
        many = sum(seconds > FAR * middle for seconds in last) >= MANY
        times = (1 + self._limit) / 2 if self._is_uneven else self._limit
        self._is_uneven = many and mean > times * middle
        return Finding(self._is_uneven, self._uneven, "uneven", mean, limit=self._limit * middle)


def _seconds(record: Record) -> float | None:
    seconds = number(record, "sec_per_step")
    if seconds is None:
        rate = number(record, "samples_per_sec")
        return 1 / rate if rate else None
    return seconds
