"""Trends of measured values and step times over a window of the newest, and the limits that these cross."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from operator import mul
from typing import Any

from monitoring.journal.records import Record

# Values that a trend is taken from: a minute of samples.
TREND_WINDOW = 60

# Below so many values every trend is stable.
FEWEST = 5

# A slope counts from so many of its standard errors on, and where it has changed the value by so large a
# part of its mean over the window: a value that only trembles is stable.
ERRORS = 3.0
SMALLEST_CHANGE = 0.005

# Steps that the time of a step is taken from.
STEP_WINDOW = 50

# A step is an anomaly from so many times the usual on, and its end is a step below so many times.
ANOMALOUS = 3.0
USUAL_AGAIN = 1.5
# Steps after which what is usual is known.
KNOWN_AFTER = 20

# Percent from which a warning is due, and how far below that the use has to fall before another is.
MEMORY_LIMIT = 90.0
GPU_MEMORY_LIMIT = 95.0
HYSTERESIS = 5.0


class Trend:
    """The newest values of one measurement."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=TREND_WINDOW)
        self._values: deque[float] = deque(maxlen=TREND_WINDOW)
        self._shown: dict[bool, Record] = {}

    def add(self, time: float, value: object) -> None:
        """A value at a time in seconds; what is no finite number is left out."""
        if isinstance(value, int | float) and math.isfinite(value):
            if self._times and time < self._times[-1]:
                self._times.clear()  # the clock was set back
                self._values.clear()
            self._times.append(time)
            self._values.append(float(value))
            self._shown = {}

    def shown(self, *, in_detail: bool) -> Record | None:
        """`current`, `avg_last_5` and `trend_direction`, in detail also the slope; None without a value."""
        if not self._values:
            return None
        if in_detail not in self._shown:  # many steps are shown between two samples of the machine
            self._shown[in_detail] = self._made(in_detail=in_detail)
        return self._shown[in_detail]

    def _made(self, *, in_detail: bool) -> Record:
        newest = list(self._values)[-5:]
        slope, direction = self._regression()
        found: Record = {
            "current": newest[-1],
            "avg_last_5": sum(newest) / len(newest),
            "trend_direction": direction,
        }
        if in_detail:
            found |= {"slope_per_minute": 60 * slope, "num_values": len(self._values)}
        return found

    def _regression(self) -> tuple[float, str]:
        """Return the slope (1/s) of the least-squares line, and increasing, decreasing or stable."""
        count = len(self._times)
        mean_time, mean = sum(self._times) / count, sum(self._values) / count
        times = [time - mean_time for time in self._times]
        spread = sum(map(mul, times, times))
        if count < FEWEST or not spread:
            return 0.0, "stable"
        values = [value - mean for value in self._values]
        together = sum(map(mul, times, values))
        slope = together / spread
        apart = max(0.0, sum(map(mul, values, values)) - slope * together)  # squares of what is off the line
        error = math.sqrt(apart / (count - 2) / spread)
        change = abs(slope) * (times[-1] - times[0])
        if abs(slope) <= ERRORS * error or change <= SMALLEST_CHANGE * abs(mean):
            return slope, "stable"
        return slope, "increasing" if slope > 0 else "decreasing"


class StepTimes:
    """How long the newest steps took, with all that lies between two of them."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=STEP_WINDOW)
        self._between: deque[float] = deque(maxlen=STEP_WINDOW)  # seconds from one step to the next
        self._last: tuple[int, float] | None = None
        self._usual: float | None = None
        self._is_anomalous = False
        self._pace: tuple[float | None] | None = None

    def add(self, step: int, end: float, seconds: float | None) -> bool:
        """A step by its end and its own seconds; True if its time is far from what was usual until now.

        True once per episode: until a step takes about its usual time again.
        """
        if self._last is not None and (step <= self._last[0] or end < self._last[1]):
            self.restart()  # a resumed training does steps again; or the clock was set back
        if self._last is not None:
            self._between.append((end - self._last[1]) / (step - self._last[0]))
        self._last = step, end
        self._pace = None
        if seconds is None:
            return False
        usual = math.inf
        if self._usual is not None and len(self._seconds) >= KNOWN_AFTER:
            usual = self._usual
        was, self._is_anomalous = (
            self._is_anomalous,
            seconds > usual * (USUAL_AGAIN if self._is_anomalous else ANOMALOUS),
        )
        self._seconds.append(seconds)
        self._usual = _middle_mean(list(self._seconds))
        return self._is_anomalous and not was

    @property
    def average(self) -> float | None:
        """Mean of the newest steps' own seconds; None without any."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else None

    @property
    def usual(self) -> float | None:
        """Robust mean of the same: of the middle half of them."""
        return self._usual

    def restart(self) -> None:
        """Restart the clock: time before the next step, such as an evaluation, belongs to no step."""
        self._between.clear()
        self._last = self._pace = None

    def pace(self) -> float | None:
        """Seconds from one step to the next, the robust mean of recent ones; None while not measured."""
        if self._pace is None:
            self._pace = (_middle_mean(list(self._between)) if self._between else self._usual,)
        return self._pace[0]

    def seconds_left(self, step: int, num_steps: int | None) -> float | None:
        """Return the seconds until the last step at this pace; None if the number of steps is unknown."""
        pace = self.pace()
        return None if pace is None or not num_steps else max(0, num_steps - step) * pace


def _middle_mean(values: list[float]) -> float:
    """Return the interquartile mean: that of the middle half, which no evaluation or checkpoint moves."""
    values.sort()
    cut = len(values) // 4
    middle = values[cut : len(values) - cut]
    return sum(middle) / len(middle)


class Crossings:
    """Which limits the newest use of resources is above."""

    def __init__(self) -> None:
        self._above: set[str] = set()

    def new(self, usage: dict[str, Any]) -> Iterator[tuple[str, Record]]:
        """Yield a message and its facts for each limit that this use has crossed."""
        for what, value, limit in _readings(usage):
            if value >= limit and what not in self._above:
                self._above.add(what)
                yield (
                    f"⚠️ High {what} usage: {value:.1f}%",
                    {"resource": what, "usage_percent": value, "limit_percent": limit},
                )
            elif value < limit - HYSTERESIS:
                self._above.discard(what)


def _readings(usage: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    memory = usage.get("memory", {}).get("usage_percent")
    if memory is not None:
        yield "memory", memory, MEMORY_LIMIT
    for place, device in enumerate(usage.get("gpu", {}).get("devices", ())):
        if device.get("memory_usage_percent") is not None:
            index = device.get("index", place)
            yield f"GPU {index} memory", device["memory_usage_percent"], GPU_MEMORY_LIMIT
