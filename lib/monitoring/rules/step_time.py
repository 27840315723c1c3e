"""Alert rule: steps take much longer than they did, or some of them far longer than the others.

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

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number
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

# Slow steps among others: medians that one takes, how many there must be, and among how many at the most.
FAR = 3.0
MANY = 8
AMONG = 200


# Where a training waits for processors for this share of its time, others also take its caches: its steps may
# then take so many times as long by themselves.
CROWDED = 0.2
CROWDED_TIMES = 2.0

# Seconds for which steps must be slow because of others before that is worth a note, besides the rule's own.
OTHERS_LAST = 50.0


@dataclass(frozen=True)
class Options:
    """When steps are slow."""

    limit: float
    """Times the usual step time that a step may take."""
    seconds: float
    """Seconds for which they must be slow."""

    def __post_init__(self) -> None:
        if self.limit <= 1:
            raise ValueError("limit is at most 1")


class Rule(RuleDefaults):
    """Warns while steps are slow, or (subject `uneven`) some of them are; notes what others cause."""

    def __init__(self, options: Options) -> None:
        self.hold = options.seconds
        self._limit = limit = options.limit
        self._message = f"steps take more than {limit:g} times as long as before"
        self._uneven = f"some steps take so long that the mean is over {limit:g} times the median"
        self._others = f"other processes have the processors: {self._message}"
        self._begin()

    def _begin(self) -> None:
        self._whole, self._own = _Times(self._limit), _Times(self._limit)
        self._others_since = math.inf

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") == "start":
            self._begin()
            return ()
        seconds = _seconds(record)
        if seconds is None:
            return ()
        waited = number(record, "cpu_wait_seconds")
        own, whole = self._own, self._whole
        is_known = own.take(seconds - (waited or 0.0))
        if waited is not None:
            whole.take(seconds)
        if not is_known:
            return ()
        are_slow = own.are_slow
        if are_slow and own.total() < (1 - CROWDED) * whole.total():
            are_slow = max(own.now, own.middle) > CROWDED_TIMES * own.bound
        found = [
            Finding(are_slow, self._message, "", own.now, limit=own.bound),
            Finding(
                own.are_uneven and not own.are_slow, self._uneven, "uneven", own.mean, limit=own.most_even
            ),
        ]
        if waited is not None:
            by_others = whole.are_slow and not are_slow
            time = number(record, "time") or 0.0
            self._others_since = min(self._others_since, time) if by_others else math.inf
            by_others = time - self._others_since >= OTHERS_LAST
            found.append(
                Finding(by_others, self._others, "other work", whole.now, limit=whole.bound, severity="info")
            )
        return found


class _Times:
    """Step times of an attempt, and whether the last ones are slow beside the usual."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.are_slow = self.are_uneven = False
        self.now = self.mean = 0.0
        """The newest time, or its median where that is judged; the mean of the last ones."""
        self.bound = self.most_even = math.inf
        """The bounds of `now` and `mean`."""
        self._skip = WARM_UP
        self._last: deque[float] = deque(maxlen=AMONG)
        self._blocks: deque[tuple[float, float]] = deque(maxlen=BLOCKS)
        """Median and deviation of each block."""
        self._first: tuple[float, float] | None = None
        self._usual, self._noise = math.inf, 0.0
        self.middle = math.inf
        """The median of the LONG newest."""
        self._taken = 0

    def take(self, seconds: float) -> bool:
        """Judge with one more; False before enough is known."""
        if self._skip:
            self._skip -= 1
            return False
        last = self._last
        last.append(seconds)
        self._taken += 1
        if self._taken % EVERY == 0 and len(last) >= LONG:
            self._note_usual()
            self._judge_uneven()
        if self._usual == math.inf:
            return False
        self._judge_newest(seconds)
        return True

    def total(self) -> float:
        """Return the sum of the LONG newest."""
        return sum(self._last[place] for place in range(-min(LONG, len(self._last)), 0))

    def _judge_newest(self, seconds: float) -> None:
        last, usual = self._last, self._usual
        self.now, self.bound = seconds, self._limit * usual
        newest = [last[place] for place in range(-NEWEST, 0)]
        # nearly always: no median for these
        if not self.are_slow and max(newest) <= self.bound and self.middle <= self.bound:
            return
        self.now = now = median(newest)
        # what is over must be clearly so, that an alert at the limit does not come and go
        if self.are_slow:
            self.are_slow = now > (1 + self._limit) / 2 * usual
        else:
            error = 1.2533 * self._noise / math.sqrt(LONG)
            leaps = now > self.bound and now - usual > SURE * self._noise
            is_high = self.middle > self.bound and self.middle - usual > SURE * error
            self.are_slow = leaps or (is_high and now > (1 + self._limit) / 2 * usual)

    def _note_usual(self) -> None:
        """Compute the median of the last LONG, and what is usual from now on."""
        last = [self._last[place] for place in range(-LONG, 0)]
        self.middle = median(last)
        if self._taken % LONG:
            return
        block = self.middle, spread(last, self.middle)
        self._first = self._first or block
        self._blocks.append(block)
        # pairs compare by their medians first, and the deviation comes with the lower one
        self._usual, self._noise = min(self._first, sorted(self._blocks)[len(self._blocks) // 2])

    def _judge_uneven(self) -> None:
        """Whether some steps are far slower than the others."""
        last = self._last
        middle, self.mean = median(last), sum(last) / len(last)
        many = sum(seconds > FAR * middle for seconds in last) >= MANY
        times = (1 + self._limit) / 2 if self.are_uneven else self._limit
        self.most_even = self._limit * middle
        self.are_uneven = many and self.mean > times * middle


def _seconds(record: Record) -> float | None:
    seconds = number(record, "sec_per_step")
    if seconds is None:
        rate = number(record, "samples_per_sec")
        return 1 / rate if rate else None
    return seconds
