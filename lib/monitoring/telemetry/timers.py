"""Timers of a TelemetryTracker: by this process's clock, and by a GPU's own without waiting for it.

Each is a context manager and a decorator, and may be entered again within itself; there is one per name.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from monitoring.telemetry.device_pool import DevicePool, Mark
from monitoring.telemetry.measurements import WAITING, Measurements

# Pairs of events of a timer that are kept without a look whether they have passed.
MAX_IN_FLIGHT = 64

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Timer:
    """`with timer: …`, or above a function."""

    __slots__ = ()

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        raise NotImplementedError

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """The function, each call of which is timed."""

        @functools.wraps(function)
        def timed(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
            with self:
                return function(*arguments, **named)

        return timed


def off_timer() -> Timer:
    """Return a timer that measures nothing, at half the cost of methods of ours: what `with` calls is in C.

    `type.__prepare__` takes any arguments and returns an empty dict, so that errors pass. No other function
    of Python's that would do as well is called without a tuple of its arguments.
    """
    members = {"__slots__": (), "__enter__": tuple, "__exit__": type.__prepare__}
    made: Timer = type("OffTimer", (Timer,), {**members, "__call__": staticmethod(lambda called: called)})()
    return made


def host_timer(measured: Measurements) -> Timer:
    """Return a timer by the clock of this process, in seconds.

    `with` looks its two methods up in the class. So each timer has a class of its own whose methods know
    where to put what they measure: half the cost of an object that looks it up in itself. Threads that use
    one timer at once may swap their durations; count, total and mean stay right.
    """
    begun: list[float] = []
    waiting, take_in, ended, now = measured.waiting, measured.take_in, begun.pop, time.perf_counter
    add = waiting.append

    def leave(kind: object, error: object, trace: object) -> None:
        add(now() - ended())
        if len(waiting) > WAITING:
            take_in()

    # A step of this iterator reads the clock and notes what it says, all of it in C.
    enter = map(begun.append, iter(now, None)).__next__
    members = {"__slots__": (), "__enter__": enter, "__exit__": staticmethod(leave)}
    made: Timer = type("HostTimer", (Timer,), members)()
    return made


class CudaTimer(Timer):
    """Timer by events in a GPU's work, which come from the process's one pool of them."""

    __slots__ = ("_begun", "_device", "_in_flight", "_measured", "_pool")

    def __init__(self, measured: Measurements, pool: DevicePool, device: Any = "cuda") -> None:
        """`device` is by default the one that is current when the timer is entered."""
        self._measured, self._pool, self._device = measured, pool, device
        self._begun: list[Mark] = []
        self._in_flight: deque[tuple[Mark, Mark]] = deque()

    def __enter__(self) -> None:
        self._begun.append(self._pool.mark(self._device, timing=True))

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._in_flight.append((self._begun.pop(), self._pool.mark(self._device, timing=True)))
        if len(self._in_flight) > MAX_IN_FLIGHT:
            self.take_passed()

    def take_passed(self) -> None:
        """Measure what the GPU has done; what it has still to do stays, and all of one that has failed."""
        try:
            while self._in_flight and self._in_flight[0][1].passed():
                begin, end = self._in_flight.popleft()
                self._measured.add(begin.seconds_until(end))
        except RuntimeError:
            return

    def forget(self) -> None:
        """Discard timings in flight."""
        self._in_flight.clear()
