"""Notes which driver call a process is in, where that outlives the process, and the calls to leave out.

A driver that crashes takes its process along without a word, and one that hangs says nothing at all. Its
parent process reads here which call it is in, and can start it again without that call (see
monitoring.sampler_process.process).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from mmap import mmap
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, Self

# Words of the page: the note of the call that each thread is in, 0 for none, and the GPU that sampling is
# about, plus one. A note is the number of a call, and may have the GPU, plus one, in its upper bits. Storing
# a word is all that a noted call costs.
SAMPLING, EVENTS, GPU = THREADS = (0, 1, 2)
WORDS = struct.Struct("3I")
GPU_SHIFT = 16

# Behind them the names of the calls, by their numbers from 1 on.
NAME_BYTES = 64
MOST_NAMES = 63

NOTE_BYTES = NAME_BYTES * (1 + MOST_NAMES)


class DriverCall(NamedTuple):
    """A call that can be left out, as one word of a command line: NAME or NAME@GPU."""

    name: str
    """The function's name; empty for every call about a GPU."""
    gpu: int | None = None
    """Its index among its vendor's; None for all of them."""

    def __str__(self) -> str:
        return self.name if self.gpu is None else f"{self.name}@{self.gpu}"

    @classmethod
    def of(cls, word: str) -> Self:
        name, _, gpu = word.partition("@")
        return cls(name, int(gpu) if gpu else None)


class DriverCalls:
    """The calls that one process notes in a `page` of NOTE_BYTES, and those that it leaves out."""

    def __init__(self, page: mmap | bytearray | None = None, *, left_out: Iterable[DriverCall] = ()) -> None:
        self._page = bytearray(NOTE_BYTES) if page is None else page
        self.words = memoryview(self._page)[: WORDS.size].cast("I")
        """A call is noted by storing its note at the place of its thread."""
        self._left_out = frozenset(left_out)
        self._numbers: dict[str, int] = {}

    def about(self, gpu: int | None) -> None:
        """The calls that follow are about this GPU, by its index among its vendor's; None: about no one."""
        self.words[GPU] = 0 if gpu is None else gpu + 1

    def leaves_out(self, name: str) -> bool:
        """Whether a function is not to be called, for the GPU that calls are about."""
        gpu = self.words[GPU] - 1
        return not self._left_out.isdisjoint((DriverCall(name), DriverCall(name, gpu), DriverCall("", gpu)))

    def leaves_out_gpu(self, gpu: int) -> bool:
        """Whether a GPU must not be queried."""
        return DriverCall("", gpu) in self._left_out

    def number(self, name: str) -> int:
        """Return the number of a function in `words`, 0 if there are too many."""
        if name not in self._numbers and len(self._numbers) < MOST_NAMES:
            number = self._numbers[name] = len(self._numbers) + 1
            text = name.encode()[:NAME_BYTES]
            self._page[number * NAME_BYTES : number * NAME_BYTES + len(text)] = text
        return self._numbers.get(name, 0)

    def note(self, name: str) -> int:
        """Return the note of a function that is called for the GPU that calls are now about."""
        number = self.number(name)
        # both in one word, whose store is one step: a process that dies has noted both, or none
        return number and number | self.words[GPU] << GPU_SHIFT

    def noted(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        refuse: Callable[..., Any],
        thread: int = SAMPLING,
    ) -> Callable[..., Any]:
        """`function`, whose calls are noted under this name; `refuse` is called where it is left out."""
        words, number = self.words, self.number(name)
        if DriverCall(name) in self._left_out:
            function = refuse
        if thread == SAMPLING and any(call.gpu is not None for call in self._left_out):
            function = self._sparing(name, function, refuse)

        def call(*arguments: Any) -> Any:
            words[thread] = number  # first: the driver may crash or hang in the call
            return function(*arguments)

        return functools.update_wrapper(call, function) if isinstance(function, FunctionType) else call

    def idle(self) -> None:
        """No driver is being called now; a thread that only waits for events stays noted."""
        self.words[SAMPLING] = self.words[GPU] = 0

    def _sparing(
        self, name: str, function: Callable[..., Any], refuse: Callable[..., Any]
    ) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return (refuse if self.leaves_out(name) else function)(*arguments)

        return call


def last_call(page: mmap | bytearray, *, waits: bool = True) -> DriverCall | None:
    """Return the call that the process of a page is in, or died in; None if it is in none.

    If it is sampling, that call; else, with `waits`, the one that waits for events: a thread always does.
    """
    sampling, events, gpu = WORDS.unpack_from(page)
    if sampling:
        own, number = divmod(sampling, 1 << GPU_SHIFT)
        return DriverCall(_name(page, number), (own or gpu) - 1 if own or gpu else None)
    return DriverCall(_name(page, events)) if events and waits else None


def _name(page: mmap | bytearray, number: int) -> str:
    return (
        bytes(page[number * NAME_BYTES : (number + 1) * NAME_BYTES]).rstrip(b"\0").decode("utf-8", "replace")
    )


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
            found = self._calls.noted(name, found, refuse=self._refuse, thread=self._thread)
        setattr(self, name, found)  # so that the next look finds it without this function
        return found

    def _refuse(self, *arguments: Any) -> Any:
        raise self._refusal()


# A process calls its drivers for one reader of notes; one without a reader keeps them to itself.
_calls = DriverCalls()


def driver_calls() -> DriverCalls:
    """Return the calls of this process."""
    return _calls


def note_driver_calls(calls: DriverCalls) -> None:
    """Have this process note its calls there; before samplers are opened."""
    global _calls
    _calls = calls
