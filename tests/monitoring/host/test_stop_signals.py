"""A signal that comes while the event that it sets is being waited for."""

from __future__ import annotations

import signal
import threading

from monitoring.agent.ending import set_signals

from ...waiting import GUARD


def test_signal_is_not_lost_within_the_wait_for_its_event() -> None:
    """A handler that set it would wait for a lock that `wait`, which it interrupts, holds."""
    stop, ending = threading.Event(), threading.Event()
    set_signals(stop, ending)
    for event in (stop, ending):
        with event._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)
            assert not event.is_set()
    assert (stop.wait(GUARD), ending.wait(GUARD)) == (True, True)
