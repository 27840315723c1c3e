"""Room on machines that a scheduler shares out: what it has no room for waits in its queue."""

from __future__ import annotations

from collections.abc import Sequence

from kharness.runs.launch import Launch, Occupant, Slot


class Elsewhere:
    """Room without end, or for `most` at once where what runs next depends on what ran before."""

    def __init__(self, most: int = 0) -> None:
        self._most = most

    def has_room(self, running: Sequence[Occupant]) -> bool:
        return not self._most or len(running) < self._most

    def acquire(self, launch: Launch, running: Sequence[Occupant]) -> Slot | None:
        """The slot that the plan has for it; where that is, its job knows."""
        return Slot(threads=launch.threads) if self.has_room(running) else None

    def release(self, slot: Slot) -> None:
        """The scheduler knows."""
