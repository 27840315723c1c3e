"""How often launchers are asked: one that runs a program for each answer must not be asked all the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kharness.matrix.running.execute import ActiveRun

# Questions may take this share of the time, and an end is noticed within so many seconds.
SHARE = 0.05
LONGEST = 60.0


class PollPace:
    """Processes of this machine are asked about whenever a signal has come, which costs nothing.

    Of any other launcher it is not known what a question costs. If it runs a program, the end of that is a
    signal that wakes the runner, which would ask again at once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0

    def due(self, running: Sequence[ActiveRun]) -> list[ActiveRun]:
        """Those to ask about now."""
        now = self._clock()
        return [run for run in running if run.is_watched or now >= self._next]

    def asked(self, since: float) -> None:
        """A round of questions that began then is over."""
        now = self._clock()
        if now >= self._next:
            self._next = now + min(LONGEST, (now - since) / SHARE)

    def now(self) -> float:
        return self._clock()
