"""Lines that are exactly equal, drawn as stripes in turns: the last one drawn would hide all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

# In line widths: a stripe is longer than the dots of a run that did not complete.
STRIPE = 5.0
DOT, DOT_GAP = 1.0, 1.5
# What each marker of a ring is wider than the next within it.
RING = 4.0


@dataclass(frozen=True)
class Turn:
    """Which of how many equal lines one is."""

    number: int = 0
    of: int = 1

    def dashes(self, *, dotted: bool = False) -> Any:
        """matplotlib's `ls`: together the equal lines fill what one alone would."""
        on, gap = (DOT, DOT_GAP) if dotted else (STRIPE, 0.0)
        period = self.of * (on + gap)
        if period == on:
            return "-"
        # The offset is where in its own pattern a line begins.
        return (-self.number * (on + gap) % period, (on, period - on))

    def markers(self, num_points: int, size: float) -> dict[str, Any]:
        """matplotlib's marker options: at points in turns, or in rings where there are fewer of them."""
        if num_points >= self.of:
            return {"ms": size, "markevery": (self.number, self.of)}
        return {"ms": size + RING * (self.of - 1 - self.number), "clip_on": False}


ALONE = Turn()


def turns(keys: Sequence[Hashable]) -> list[Turn]:
    """Return each line's turn among those with an equal key."""
    of, met = Counter(keys), Counter[Hashable]()
    found = []
    for key in keys:
        found.append(Turn(met[key], of[key]))
        met[key] += 1
    return found


def same_as(keys: Sequence[Hashable], labels: Sequence[str]) -> list[str]:
    """Return for each line the label of the first equal one; empty for that one itself."""
    first: dict[Hashable, str] = {}
    return [
        "" if first.setdefault(key, label) == label else first[key]
        for key, label in zip(keys, labels, strict=True)
    ]
