"""Warnings of resources that run out: one for each time that a limit is crossed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from monitoring.journal.records import Record

# Percent from which a warning is due, and how far below that the use has to fall before another is.
MEMORY_LIMIT = 90.0
GPU_MEMORY_LIMIT = 95.0
HYSTERESIS = 5.0


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
