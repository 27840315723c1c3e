"""Signals that set events, also while somebody waits for one of these."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterable
from types import FrameType


def set_by(numbers: Iterable[signal.Signals], *events: threading.Event) -> None:
    """From now on each of these signals sets the events; to be called in the main thread.

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
