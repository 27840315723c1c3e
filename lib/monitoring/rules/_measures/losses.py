"""The losses of a training that rules about it compare: its first ones and its last."""

from __future__ import annotations

from collections import deque

from monitoring.journal.records import Record
from monitoring.rules._measures.robust import median

# Step records whose median is the loss of the beginning, and those that count as the last.
FIRST = 10
WINDOW = 50


class Losses:
    """The first and the last losses; an attempt that resumes goes on from those of the beginning."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.start: float | None = None
        """The median of the first; None before there are FIRST."""
        self.last: deque[float] = deque(maxlen=WINDOW)

    def begin(self, record: Record) -> bool:
        """Take in a start record, whose attempt goes back to its checkpoint; whether it is from scratch."""
        self.last.clear()
        is_new = not isinstance(record.get("resumed_from"), dict)
        if is_new:
            self.first.clear()
            self.start = None
        return is_new

    def take(self, loss: float) -> None:
        """Take in the loss of the next step record."""
        self.last.append(loss)
        if self.start is None:
            self.first.append(loss)
            self.start = median(self.first) if len(self.first) == FIRST else None
