"""The call of a driver that is being made, noted where it outlives the process, and the calls to leave out.

A driver that crashes takes its process along without a word. Whoever started the process reads here which
call it was in, and can start it again without that call (see monitoring.sampling.process).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from mmap import mmap
from types import FunctionType, ModuleType
from typing import Any

NAME_BYTES = 64

# Each thread that calls drivers has a place of its own for the name.
SAMPLING, EVENTS = THREADS = (0, 1)

NOTE_BYTES = NAME_BYTES * len(THREADS)


class DriverCalls:
    """What one process notes, into a `page` of NOTE_BYTES, and what it leaves out."""

    def __init__(self, page: mmap | bytearray | None = None, *, left_out: Iterable[str] = ()) -> None:
        self._page = bytearray(NOTE_BYTES) if page is None else page
        self._left_out = frozenset(left_out)

    def leaves_out(self, name: str) -> bool:
        return name in self._left_out

    def noted(self, name: str, function: Callable[..., Any], *, thread: int = SAMPLING) -> Callable[..., Any]:
        """`function`, whose calls are noted under this name."""
        page, start, end = self._page, thread * NAME_BYTES, (thread + 1) * NAME_BYTES
        note = name.encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0")

        def call(*arguments: Any) -> Any:
            page[start:end] = note
            return function(*arguments)

        return functools.update_wrapper(call, function) if isinstance(function, FunctionType) else call

    def idle(self) -> None:
        """No driver is being called now; a thread that only waits for events stays noted."""
        self._page[:NAME_BYTES] = bytes(NAME_BYTES)


def last_call(page: mmap | bytearray) -> str | None:
    """The call in which the process of a page died, None if it was in none.

    If it was sampling, that call; else the one that waits for events, in which a thread always is.
    """
    for thread in THREADS:
        name = bytes(page[thread * NAME_BYTES : (thread + 1) * NAME_BYTES]).rstrip(b"\0")
        if name:
            return name.decode("utf-8", "replace")
    return None


class NotedModule:
    """The Python module of a driver, whose functions are noted, or refuse if they are left out."""

    def __init__(
        self,
        module: ModuleType,
        calls: DriverCalls,
        *,
        prefix: str,
        refusal: Callable[[], Exception],
        thread: int = SAMPLING,
    ) -> None:
        """Functions named `prefix`... call the driver; `refusal` is what one that is left out raises."""
        self._module, self._calls, self._prefix = module, calls, prefix
        self._refusal, self._thread = refusal, thread

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name.startswith(self._prefix) and isinstance(found, FunctionType):
            function = self._refuse if self._calls.leaves_out(name) else found
            found = self._calls.noted(name, function, thread=self._thread)
        setattr(self, name, found)  # so that the next look finds it without this function
        return found

    def _refuse(self, *arguments: Any) -> Any:
        raise self._refusal()


# A process calls its drivers for one reader of notes; one that nobody reads keeps them to itself.
_calls = DriverCalls()


def driver_calls() -> DriverCalls:
    """Those of this process."""
    return _calls


def note_driver_calls(calls: DriverCalls) -> None:
    """To be said before samplers are opened."""
    global _calls
    _calls = calls
