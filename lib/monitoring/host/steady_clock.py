"""A clock that nobody sets, for how much time has passed between two moments of this process."""

from __future__ import annotations

import time


class SteadyClock:
    """UTC epoch seconds as they were when this began, counted on whatever becomes of the system's clock."""

    def __init__(self) -> None:
        self._began = time.time()
        self._monotonic = time.monotonic()

    def now(self) -> float:
        return self._began + self.seconds()

    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._monotonic

    def earliest(self) -> float:
        """What the system's clock may have said at the beginning, had it been set by then as it is now.

        Records since then are not older, unless the clock is set once more.
        """
        return min(self._began, time.time() - self.seconds())
