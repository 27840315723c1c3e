"""Values of GPUs over time for graphs: the newest samples, and older ones as means over longer times.

It takes a few megabytes however long it grows, and any window of it is drawn from about a thousand values.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from monitoring.gpu.sample import GpuSample

# Seconds over which the values of a level are means, 0 for the samples themselves, and how many it keeps: a
# thousand are seventeen minutes at 1 Hz, half an hour, two hours, a day, a week and three months.
LEVELS = (0.0, 2.0, 8.0, 90.0, 720.0, 7200.0)
KEPT = 1000

# A GPU that was not sampled for so many times the usual distance leaves a gap.
GAP = 3.0


class Values(NamedTuple):
    """The drawn values of one GPU, or of all together; None was not measured."""

    util: float | None
    """Percent, as `memory`."""
    memory: float | None
    heat: float | None
    """Degrees Celsius; of several GPUs the most."""
    power: float | None
    """Watts; of several GPUs the sum."""


NAMES = Values._fields

# Times in UTC epoch seconds, and as many values; NaN was not measured.
Part = tuple[Sequence[float], Sequence[float]]


class _Level:
    """Values by time, each a mean over `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.times = array("d")
        self.values = [array("d") for _ in NAMES]
        self._bin = -math.inf
        self._counts = [0] * len(NAMES)
        self._has_dropped = False

    def begins_after(self, time: float) -> bool:
        """Whether it had values of that time, and has them no longer."""
        return self._has_dropped and self.times[0] > time

    def add(self, time: float, values: Values) -> None:
        """Add values at a time that never goes back."""
        number = math.floor(time / self.seconds) if self.seconds else time
        is_new = number != self._bin
        if is_new:
            self._bin, self._counts = number, [0] * len(NAMES)
        for place, value in enumerate(values):
            column = self.values[place]
            if is_new:
                column.append(math.nan)
            if value is not None:
                count = self._counts[place] = self._counts[place] + 1
                column[-1] = value if count == 1 else column[-1] + (value - column[-1]) / count
        if not is_new:
            self.times[-1] = time  # a bin that is still filled has its end's time: there the newest value is
        else:
            self.times.append(time)
            if len(self.times) > 2 * KEPT:
                self._has_dropped = True
                for array_ in (self.times, *self.values):
                    del array_[:KEPT]


class Trace:
    """One GPU, or all together, over time."""

    def __init__(self) -> None:
        self.levels = [_Level(seconds) for seconds in LEVELS]
        self.began: float | None = None

    def add(self, time: float, values: Values) -> None:
        if self.began is None:
            self.began = time
        for level in self.levels:
            level.add(time, values)

    def since(self, start: float, number: int, each: float) -> Part:
        """Return values from just before `start` on, of the coarsest level that resolves `each` seconds."""
        fine = [place for place, level in enumerate(self.levels) if level.seconds <= each / 4]
        place = fine[-1]
        while place + 1 < len(self.levels) and self.levels[place].begins_after(start):
            place += 1
        level = self.levels[place]
        first = max(0, bisect_left(level.times, start) - 1)
        return level.times[first:], level.values[number][first:]


class Timeline:
    """The traces of some GPUs."""

    def __init__(self) -> None:
        self._of: dict[int | None, Trace] = {}
        self.last: float | None = None
        """UTC epoch seconds of the newest sample."""

    def add(self, time: float, gpus: Iterable[GpuSample]) -> None:
        """A look at all GPUs; one that is not newer than those before is left out."""
        if self.last is not None and time <= self.last:
            return
        gpus = list(gpus)
        for sample in gpus:
            self.of(sample.index).add(time, values_of([sample]))
        self.of(None).add(time, values_of(gpus))
        self.last = time

    def of(self, index: int | None) -> Trace:
        """Return the trace of one GPU; None: of all together."""
        if index not in self._of:
            self._of[index] = Trace()
        return self._of[index]

    @property
    def began(self) -> float | None:
        """UTC epoch seconds of the oldest sample."""
        return self.of(None).began


def values_of(gpus: Sequence[GpuSample]) -> Values:
    """Return the values of some GPUs of a sample together."""
    used = total = power = util = 0.0
    num_memory = num_power = num_util = 0
    heat: float | None = None
    for gpu in gpus:
        if gpu.utilization_percent is not None:
            util, num_util = util + gpu.utilization_percent, num_util + 1
        if gpu.memory_used_mb is not None and gpu.memory_total_mb:
            used, total, num_memory = used + gpu.memory_used_mb, total + gpu.memory_total_mb, num_memory + 1
        if gpu.power_draw_watts is not None:
            power, num_power = power + gpu.power_draw_watts, num_power + 1
        if gpu.temperature_celsius is not None:
            heat = gpu.temperature_celsius if heat is None else max(heat, gpu.temperature_celsius)
    return Values(
        util / num_util if num_util else None,
        100 * used / total if num_memory else None,
        heat,
        power if num_power else None,
    )


def columns(parts: Sequence[Part], start: float, each: float, count: int) -> list[float | None]:
    """`count` means over `each` seconds from `start` on, of parts that follow each other.

    Where samples are further apart than a column is wide, a value holds until the next one, unless that
    comes much later than usual.
    """
    sums, counts, before = [0.0] * count, [0] * count, math.nan
    known: list[float] = []
    for times, values in parts:
        for time, value in zip(times, values, strict=True):
            place = math.floor((time - start) / each + 1e-3)
            if place >= count:
                continue
            known.append(time)
            # NaN: not measured
            if value != value:
                continue
            if place < 0:
                before = value
            else:
                sums[place] += value
                counts[place] += 1
    return _held(sums, counts, before, known, each)


def _held(
    sums: list[float], counts: list[int], before: float, times: list[float], each: float
) -> list[float | None]:
    usual = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
    longest = math.ceil(GAP * usual / each) if usual > each else 0
    found: list[float | None] = []
    held, age = before, 0
    for total, count in zip(sums, counts, strict=True):
        if count:
            held, age = total / count, 0
        else:
            age += 1
        is_known = held == held and age <= longest
        found.append(held if is_known else None)
    return found
