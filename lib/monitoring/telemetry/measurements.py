"""Moments and median of a quantity that is measured again and again, in bounded memory."""

from __future__ import annotations

import base64
import importlib.util
import math
from array import array
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

# Measurements that wait to be taken in together: alone each would cost more than what it measures.
WAITING = 1024

# Measurements that are kept one by one.
EXACT = 4096

# The k of a KLL sketch (Karnin, Lang, Liberty 2016, arXiv:1603.05346): about 4 kB, 1.33 % of rank error.
SKETCH_SIZE = 200

UNMEASURED = f"not measured of more than {EXACT}: pip install datasketches"

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
        self._turns = [True]  # empty while a call takes in

    def add(self, value: float) -> None:
        """Add a finite number."""
        self.waiting.append(value)
        if len(self.waiting) > WAITING:
            self.take_in()

    def take_in(self) -> None:
        """Add what waits to the sums, in one thread at a time: others, and signal handlers, do not wait."""
        # No lock: as the call that acquires one returns, a signal handler may raise, and leave it locked.
        # None runs between a `del` and the `try` after it.
        try:
            del self._turns[0]
        except IndexError:
            return
        try:
            self._take_in()
        finally:
            self._turns[:] = [True]

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


class Quantiles:
    """The median of measurements in bounded memory: exact of few, by datasketches of many."""

    def __init__(self) -> None:
        self._exact: list[float] | None = []
        """All measurements; None once there are too many."""
        self._sketch: Any = None

    def add(self, values: Sequence[float]) -> None:
        """Add finite numbers."""
        if self._exact is None:
            self._add_to_sketch(values)
            return
        self._exact.extend(values)
        if len(self._exact) > EXACT:
            if importlib.util.find_spec("datasketches"):
                import datasketches

                self._sketch = datasketches.kll_doubles_sketch(SKETCH_SIZE)
                self._add_to_sketch(self._exact)
            self._exact = None

    @property
    def how(self) -> str:
        """Where the median comes from: `exact`, a sketch and its error, or why there is none."""
        if self._exact is not None:
            return "exact"
        if self._sketch is None:
            return UNMEASURED
        return f"KLL sketch, rank error {self._sketch.normalized_rank_error(False):.1%}"

    def median(self) -> float | None:
        """Return the median; None without measurements, or without a sketch of many."""
        if self._exact is not None:
            self._exact.sort()  # where it stays: the next time only what came since is out of order
            return median(self._exact) if self._exact else None
        return float(self._sketch.get_quantile(0.5)) if self._sketch is not None else None

    def state_dict(self) -> dict[str, Any]:
        """Return the state, of JSON types."""
        sketch = base64.b64encode(self._sketch.serialize()).decode() if self._sketch is not None else None
        return {"exact": None if self._exact is None else list(self._exact), "sketch": sketch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue; a sketch that cannot be read here, without datasketches, is lost, and `how` says so."""
        exact, sketch = state["exact"], state["sketch"]
        self._exact = None if exact is None else list(exact)
        self._sketch = None
        if sketch is not None and importlib.util.find_spec("datasketches"):
            import datasketches

            self._sketch = datasketches.kll_doubles_sketch.deserialize(base64.b64decode(sketch))

    def _add_to_sketch(self, values: Sequence[float]) -> None:
        if self._sketch is not None:
            self._sketch.update(array("d", values))  # in bulk: one at a time would take longer than a timer
