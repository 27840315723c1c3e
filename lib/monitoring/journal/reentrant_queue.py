"""Serializes work that threads, and signal handlers that interrupt them, hand in: one item at a time."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from monitoring.host.process import in_children

# Values of `only` before the first call, and after a second thread has called.
NOBODY, SEVERAL = -1, 0

# Seconds between two looks at whether the first thread's call is over, when a second one comes: once per run.
LOOK_EVERY = 50e-6


class ReentrantQueue:
    """Hands records to `take` one at a time, and in the order in which they were added.

    `add` returns when its record was taken. Only one in the middle of another call of its own thread (by a
    signal handler or a finalizer) returns at once: to wait would be for itself. The call that it interrupted
    takes that record right after its own, also when the handler raises.

    As long as one thread calls, there is no lock to take: a lock costs as much as all of the rest. The
    second thread says so in `only`, and waits until `busy` is over; from then on all take the lock. The
    first sets `busy` and then looks at `only` once more, so one of the two sees the other.
    """

    # here and in what a step's record needs besides: side by side in memory, where caches hold something else
    __slots__ = ("__weakref__", "_lock", "_take", "busy", "only", "queued")

    def __init__(self, take: Callable[[Any], None]) -> None:
        """`take` raises nothing but what a signal handler does."""
        self.only = NOBODY
        """The one thread that has called so far, or one of the constants above."""
        self.busy = False
        """Whether a call is under way, of the `only` thread or of the one that holds the lock."""
        self.queued: deque[Any] = deque()
        """Records of calls that have interrupted another one of their thread."""
        self._take = take
        self._lock = threading.RLock()
        in_children(_free_in_child)
        _all_queues.add(self)

    def add(self, record: Any) -> None:
        """Have a record taken."""
        if self.only == get_ident():
            # only a signal handler or finalizer of this thread gets here: it interrupted the call below
            if self.busy:
                self.queued.append(record)
                return
            self.busy = True
            try:
                # again, after `busy`: a thread that set SEVERAL before that saw no `busy`, and does not wait
                alone = self.only != SEVERAL
                if alone:
                    self._take_with_queued(record)
            finally:
                # what a handler queued after the last look at `queued` is left to drain
                self.busy = False
                if self.queued:
                    self.drain()
            if alone:
                return
        self._add_locked(record)

    def drain(self) -> None:
        """Take what was queued too late for the call that it interrupted."""
        while self.queued:
            self.add(self.queued.popleft())

    def _take_with_queued(self, record: Any) -> None:
        self._take(record)
        while self.queued:
            self._take(self.queued.popleft())

    def _add_locked(self, record: Any) -> None:
        with self._lock:
            if self.only == NOBODY:
                self.only = get_ident()
            elif self.only not in (SEVERAL, get_ident()):
                self.only = SEVERAL
                self._wait_for_the_first()
            # the lock is reentrant: only what interrupts its holder finds it busy
            if self.busy:
                self.queued.append(record)
                return
            self.busy = True
            try:
                self._take_with_queued(record)
            finally:
                self.busy = False
                if self.queued:
                    self.drain()

    def _wait_for_the_first(self) -> None:
        """Wait for the end of a call whose thread set `busy` before it could see SEVERAL.

        A function of its own, for CPython 3.12 and 3.13 leave a bare jump back out of the `with` around it:
        what a signal handler raises there would leave the lock locked.
        """
        while self.busy:
            time.sleep(LOOK_EVERY)


def raised_by_handler(error: BaseException) -> bool:
    """Whether a signal handler raised an error that was caught around code of this package and torch alone.

    The handler's own frame tells: what orjson and the system refuse comes from C, and has none. It may raise
    anything, and most likely what a value or a disk does (TimeoutError is an OSError).
    """
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        # torch's handler for the workers of a DataLoader raises RuntimeError
        if module.partition(".")[0] not in ("monitoring", "torch") or module.endswith("signal_handling"):
            return True
        trace = trace.tb_next
    return False


# In a forked child the lock may be held by a thread that is not there any more.
_all_queues: weakref.WeakSet[ReentrantQueue] = weakref.WeakSet()


def _free_in_child() -> None:
    for queue in list(_all_queues):
        queue.only, queue.busy, queue._lock = NOBODY, False, threading.RLock()
        queue.queued.clear()
