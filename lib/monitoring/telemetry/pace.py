"""How fast a training goes between one record and the next, and how long it takes over all attempts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def cpu_seconds() -> float:
    """CPU time, user and system, of this process with all its threads and of the children it waited for."""
    return sum(os.times()[:4])


class Pace:
    """Counts steps and samples since it was last read; on a GPU that is the pace at which work is queued."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin to count now: what was done before (an evaluation, a checkpoint) is no training step."""
        self._since = time.perf_counter()
        self._steps = 0
        self._samples = 0

    def step(self, samples: int) -> None:
        """One more step, of so many samples."""
        self._steps += 1
        self._samples += samples

    def read(self) -> dict[str, float | None]:
        """`samples_per_sec` and `sec_per_step` of the steps since the last reading; None without any."""
        now = time.perf_counter()
        seconds, steps, samples = now - self._since, self._steps, self._samples
        self._since, self._steps, self._samples = now, 0, 0
        if not steps or not seconds:
            return {"samples_per_sec": None, "sec_per_step": None}
        return {"samples_per_sec": samples / seconds, "sec_per_step": seconds / steps}


class Stopwatch:
    """Seconds of a clock, going on from those of an earlier attempt; it stands still until `start`."""

    def __init__(self, seconds: float = 0.0, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._before = seconds
        self._clock = clock
        self._since: float | None = None

    def start(self) -> None:
        self._since = self._clock()

    def restart(self) -> None:
        """Begin at zero, now."""
        self._before = 0.0
        self.start()

    @property
    def seconds(self) -> float:
        return self._before + (self._clock() - self._since if self._since is not None else 0.0)
