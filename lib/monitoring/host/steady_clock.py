"""A wall clock for differences of time: without the leaps of a system clock that is set."""

from __future__ import annotations

import time

# Seconds by which a clock leaps that was set; what it is slewed by, and the time between two calls, is less.
LEAP = 1.0


class SteadyClock:
    """UTC epoch seconds, but for the leaps of a clock that is set; one thread calls `at`."""

    def __init__(self) -> None:
        self._began = self._wall = time.time()
        self._began_monotonic = self._monotonic = time.monotonic()
        self._set_by = 0.0

    def now(self) -> float:
        return self.at(time.time())

    def at(self, wall: float) -> float:
        """Return what the system's clock would say had it not been set since the beginning; it says `wall`.

        A leap is noticed by the next call.
        """
        monotonic = time.monotonic()
        leap = wall - self._wall - (monotonic - self._monotonic)
        self._wall, self._monotonic = wall, monotonic
        if abs(leap) >= LEAP:
            self._set_by += leap
        return wall - self._set_by

    def earliest(self) -> float:
        """Return the beginning by the system's clock, as set then or as set now, whichever is earlier.

        Records since then are not older, unless the clock is set once more.
        """
        return min(self._began, time.time() - (time.monotonic() - self._began_monotonic))
