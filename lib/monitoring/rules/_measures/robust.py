"""Medians, and how far values spread about them, for rules that judge a run by its own past.

As the module statistics has them, whose import would cost every agent several milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

# Makes the standard deviation of a normal distribution of its median distance to the median.
SPREAD = 1.4826


def median(values: Iterable[float]) -> float:
    """Return the median of at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(values: Iterable[float], middle: float) -> float:
    """Return a standard deviation about `middle` that single outliers do not change."""
    return SPREAD * median(abs(value - middle) for value in values)
