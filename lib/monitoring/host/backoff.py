"""Exponential backoff: how long to wait before something that failed is tried again."""

from __future__ import annotations

# Seconds: doubled at each failure, and back to the first for what lived a steady minute.
FIRST_DELAY = 1.0
LONGEST_DELAY = 60.0
STEADY_SECONDS = 60.0


class Backoff:
    """Seconds between tries: doubled at each failure, up to the longest."""

    def __init__(self, *, first: float | None = None, longest: float | None = None) -> None:
        self._first = FIRST_DELAY if first is None else first
        self._longest = LONGEST_DELAY if longest is None else longest
        self.coming = self._first
        """Seconds to wait after the next failure."""

    def failed(self, *, lived: float = 0.0) -> float:
        """Return the seconds to wait before a retry, given how long the last try `lived`."""
        if lived > STEADY_SECONDS:
            self.reset()
        delay, self.coming = self.coming, min(2 * self.coming, self._longest)
        return delay

    def reset(self) -> None:
        """Begin with the first again."""
        self.coming = self._first
