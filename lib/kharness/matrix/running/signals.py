"""Signals to the runner: requests to stop, and children that end, without polling."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from monitoring.host.stop_signals import StopRequests

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Counts requests by SIGINT, SIGTERM and SIGHUP, which are no end; `wait` returns early for any signal.

    SIGHUP counts only where nothing else has requested a stop: a terminal that closes sends it once or twice,
    and whoever closes one after a Ctrl-C does not mean to kill what is saving.
    """

    def __init__(self) -> None:
        self.stops: list[int] = []
        """The signals that requested a stop, in order; of several of one request (StopRequests) the first."""
        self._requests = StopRequests()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # Python runs handlers between bytecodes only, and select would sleep on: the byte in the pipe wakes
        # it.
        # A full pipe is no fault: what is in it wakes select as well.
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOPPING:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue  # as nohup wants it
            self._before[number] = signal.signal(number, self._stop)
        # Without a handler of Python's the wake-up does not happen.
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # Once the terminal is closed its next SIGHUP says nothing new.
            again = number == signal.SIGHUP and number in self.stops
            signal.signal(number, signal.SIG_IGN if again else handler)
        # Before its pipe is closed: a signal in between would be written into what gets that number next.
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    @property
    def exit_code(self) -> int:
        """Exit code of a process stopped this way: 130 for Ctrl-C."""
        return 128 + self.stops[0]

    def wait(self, seconds: float, filenos: Sequence[int] = ()) -> None:
        """Return after `seconds`, or as soon as a signal has come or one of `filenos` has something."""
        if self._read in select.select([self._read, *filenos], [], [], seconds)[0]:
            os.read(self._read, 4096)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if (number != signal.SIGHUP or not self.stops) and self._requests.is_new(number):
            self.stops.append(number)


@contextmanager
def hangup_ignored() -> Iterator[None]:
    """Run work to its end although its output is no longer read."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
