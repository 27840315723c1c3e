"""Moments and median of a quantity that is measured again and again, in bounded memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from monitoring.telemetry.quantiles import Quantiles

# Measurements that wait to be taken in together: alone each would cost more than what it measures.
WAITING = 1024

STATISTICS = ("mean", "median", "std_dev", "min", "max")
"""Statistics of every quantity, besides its `count`."""


class Measurements:
    """Takes numbers; counts them, and knows their total, mean, standard deviation, range and median."""

    def __init__(self) -> None:
        self.waiting: list[float] = []
        """Measurements not taken in yet; code that fills it beyond WAITING calls `take_in`."""
        self._count = 0
        self._total = self._mean = self._squares = 0.0
        self._min, self._max = math.inf, -math.inf
        self._quantiles = Quantiles()
        self._turn = threading.Lock()

    def add(self, value: float) -> None:
        """Add a finite number."""
        self.waiting.append(value)
        if len(self.waiting) > WAITING:
            self.take_in()

    def take_in(self) -> None:
        """Add what waits to the sums, in one thread at a time: others, and signal handlers, do not wait."""
        # never blocks: a signal handler would wait for the call that it has interrupted
        if self._turn.acquire(blocking=False):
            try:
                self._take_in()
            finally:
                self._turn.release()

    def _take_in(self) -> None:
        """Merge what waits by the parallel algorithm of Chan, Golub, LeVeque (1979), which is stable."""
        count = len(self.waiting)
        if not count:
            return
        values = self.waiting[:count]
        del self.waiting[:count]  # another thread may have added one since
        total = math.fsum(values)
        mean = total / count
        apart = mean - self._mean
        both = self._count + count
        self._squares += math.fsum((value - mean) ** 2 for value in values)
        self._squares += apart * apart * self._count * count / both
        self._mean += apart * count / both
        self._count, self._total = both, self._total + total
        self._min, self._max = min(self._min, *values), max(self._max, *values)
        self._quantiles.add(values)

    @property
    def total(self) -> float:
        """The sum of all."""
        self.take_in()
        return self._total

    def statistics(self) -> dict[str, Any]:
        """`count`, STATISTICS and `quantiles`, where the median comes from; None without a measurement.

        The standard deviation is that of the measurements themselves: divided by their number.
        """
        self.take_in()
        if not self._count:
            return {"count": 0, **dict.fromkeys(STATISTICS), "quantiles": self._quantiles.how}
        return {
            "count": self._count,
            "mean": self._mean,
            "median": self._quantiles.median(),
            "std_dev": math.sqrt(self._squares / self._count),
            "min": self._min,
            "max": self._max,
            "quantiles": self._quantiles.how,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state, of JSON types."""
        self.take_in()
        return {
            "count": self._count,
            "total": self._total,
            "mean": self._mean,
            "squares": self._squares,
            "range": [self._min, self._max] if self._count else None,
            "quantiles": self._quantiles.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there; what was measured here so far no longer counts."""
        self.waiting.clear()
        self._count, self._total = state["count"], state["total"]
        self._mean, self._squares = state["mean"], state["squares"]
        self._min, self._max = state["range"] or (math.inf, -math.inf)
        self._quantiles.load_state_dict(state["quantiles"])
