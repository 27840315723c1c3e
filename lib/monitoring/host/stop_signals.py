"""Signals that request a stop: which of them are one request, and events that they set."""

from __future__ import annotations

import _thread
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a program that is started would wait for it
    import threading

SAME_WITHIN = 2.0
"""Seconds after a request to stop in which another signal is the same request."""


class StopRequests:
    """Which of the signals that a process gets are requests of their own.

    `timeout`, systemd and batch systems signal a whole group or all that a job has started, and make, which
    is one of these, passes SIGTERM on to its children: of one request a process gets two or three signals.
    Only SIGINT is different: that is a terminal's Ctrl-C, which comes once each time that it is pressed, so
    two of them are two requests, however soon.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` must be monotonic."""
        self._clock = clock
        self._latest: float | None = None
        self._has_interrupt = False

    def is_new(self, number: int) -> bool:
        """Whether the signal that has just come is a request of its own."""
        now, again = self._clock(), number == signal.SIGINT and self._has_interrupt
        self._has_interrupt = self._has_interrupt or number == signal.SIGINT
        if self._latest is not None and now - self._latest < SAME_WITHIN and not again:
            return False
        self._latest = now
        return True


def set_by(numbers: Iterable[signal.Signals], *events: threading.Event) -> None:
    """Have each of these signals set the events from now on; to be called in the main thread.

    A thread of its own does it. A handler runs within whatever the main thread does, so also within `wait` of
    such an event while that holds the event's lock, and would wait for this lock for ever.
    """

    def set_all() -> None:
        for event in events:
            event.set()

    def handle(number: int, frame: FrameType | None) -> None:
        _thread.start_new_thread(set_all, ())

    for number in numbers:
        signal.signal(number, handle)
