"""The losses of a training that rules about it compare: its first ones and its last."""

from __future__ import annotations

from collections import deque

from monitoring.journal.records import Record
from monitoring.rules import number
from monitoring.rules._measures.robust import median

# Step records whose median is the loss of the beginning, and those that count as the last.
FIRST = 10
WINDOW = 50

# Share of the loss of a guess, or of the beginning, that a training is below which has learned something.
LEARNED = 0.95

# One that begins to learn goes too far with its first steps: its loss was seen to reach 1.9 times that of a
# guess, and to rise by 4.5 times what it had just fallen, before it was back.
OVERSHOOT = 2.0
REBOUND = 8.0


class Losses:
    """The first and the last losses; an attempt that resumes goes on from those of the beginning."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.start: float | None = None
        """The median of the first; None before there are FIRST."""
        self.chance: float | None = None
        """The loss of a guess by frequencies, as the start record says it."""
        self.last: deque[float] = deque(maxlen=WINDOW)

    def begin(self, record: Record) -> bool:
        """Take in a start record, whose attempt goes back to its checkpoint; whether it is from scratch."""
        self.last.clear()
        self.chance = number(record, "chance_loss")
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

    def overshoot(self) -> float:
        """Return the loss that leaving the plateau of a guess explains; 0 once something is learned.

        A guess has `chance`, or where that is not known about the loss of the first records.
        """
        guess = self.start if self.chance is None else self.chance
        if not guess or not self.last:
            return 0.0
        middle = median(self.last)
        if middle <= LEARNED * guess:
            return 0.0
        return max(OVERSHOOT * guess, middle + REBOUND * (middle - min(self.last)))
