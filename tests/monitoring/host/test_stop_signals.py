"""Signals that ask to stop: those that are one request, and one that comes while its event is waited for."""

from __future__ import annotations

import signal
import threading

import pytest

from monitoring.agent.ending import set_signals
from monitoring.host.stop_signals import StopRequests

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


TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


@pytest.mark.parametrize(
    ("came", "new"),
    [
        ([(0.0, TERM), (0.0, TERM), (1.999, TERM)], [True, False, False]),
        ([(0.0, TERM), (2.0, TERM), (3.9, TERM), (4.0, TERM)], [True, True, False, True]),
        ([(0.0, TERM), (0.001, HUP), (0.002, INT), (1.0, INT)], [True, False, False, True]),
        ([(0.0, INT), (0.001, TERM), (1.0, TERM)], [True, False, False]),
        ([(0.0, INT), (0.0, INT)], [True, True]),
        ([(0.0, INT), (5.0, INT)], [True, True]),
        ([(0.0, TERM), (5.0, INT)], [True, True]),
    ],
)
def test_signals_within_two_seconds_are_one_request_but_for_ctrl_c_twice(
    came: list[tuple[float, int]], new: list[bool]
) -> None:
    times = iter([time for time, _ in came])
    requests = StopRequests(clock=lambda: next(times))
    assert [requests.is_new(number) for _, number in came] == new
