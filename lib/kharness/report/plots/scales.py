"""Axes of a plot: where a value stands, in thousandths of the frame, and the ticks beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kharness.report.curves import Kind

SIZE = 1000
"""Units of a frame in each direction; a path of whole numbers is short, and finer than any screen."""

_ERRORS = (90.0, 70.0, 50.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, in its own values."""

    kind: Kind
    low: float
    high: float

    def at(self, value: float) -> int:
        """Return the place of a value, 0 at the low end; a value beyond an end stands on it."""
        low, high, this = (_along(self.kind, one, self._floor) for one in (self.low, self.high, value))
        share = (this - low) / (high - low) if high > low else 0.5
        return round(SIZE * min(max(share, 0.0), 1.0))

    @property
    def _floor(self) -> float:
        """Distance from 100 at which 100 itself stands, on a scale of the error."""
        return max(100 - self.high, 1e-3)

    def ticks(self, most: int = 6) -> Sequence[tuple[float, str]]:
        """Return places in percent from the low end, with the values in words."""
        values = self._values(most)
        step = min((b - a for a, b in itertools.pairwise(values)), default=1.0)
        digits = max(0, -math.floor(math.log10(step) + 1e-9)) if self.kind == "linear" and step > 0 else None
        return [(self.at(value) / (SIZE / 100), _words(value, digits)) for value in values]

    def _values(self, most: int) -> list[float]:
        if self.kind == "log error":
            shown = [100 - one for one in _ERRORS if self.low <= 100 - one <= self.high]
            return shown[:: -(-len(shown) // most) or 1]
        if self.kind == "log":
            for factors in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
                found = _decades(self.low, self.high, factors)
                if len(found) <= most:
                    return found if len(found) > 1 else [self.low, self.high]
            return found[:: -(-len(found) // most)]
        return _round_values(self.low, self.high, most)


def scale_of(values: Sequence[float], asked: Kind = "linear") -> Scale:
    """Return a scale that holds these values with a margin: of logarithms only where they span a decade."""
    low, high = min(values), max(values)
    if asked == "log" and low > 0 and high > 10 * low:
        margin = (high / low) ** 0.04
        return Scale("log", low / margin, high * margin)
    if asked == "log error" and high <= 100 and 100 - low > 10 * (100 - high):
        nearest = min((100 - one for one in values if one < 100), default=1.0)
        return Scale(
            "log error",
            max(0.0, 100 - 1.25 * (100 - low)),
            100 - 0.8 * (nearest if high < 100 else nearest / 2),
        )
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return Scale("linear", low - margin, high + margin)


def _along(kind: Kind, value: float, floor: float) -> float:
    if kind == "log":
        return math.log10(max(value, 1e-300))
    if kind == "log error":
        return -math.log10(max(100 - value, floor))
    return value


def _decades(low: float, high: float, factors: Sequence[float]) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    return [value for value in values if low <= value <= high]


def _round_values(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    return [one * step for one in range(first, math.floor(high / step) + 1)]


def _words(value: float, digits: int | None) -> str:
    if digits is None:
        return f"{value:g}"
    if abs(value) >= 100_000 and value % 1000 == 0:
        return f"{value / 1000:,.0f}k"
    text = f"{value:,.{min(digits, 9)}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text
