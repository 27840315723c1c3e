"""One pool per process of CUDA events and pinned memory, each reused once nothing refers to it.

It never imports torch: a process that has not imported it has no tensors.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Protocol


class Event(Protocol):
    """The part of torch.cuda.Event that is used."""

    def record(self, stream: Any, /) -> None: ...

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds from this event to that one."""


class TorchDevice(Protocol):
    """The part of torch.device that is used."""

    @property
    def type(self) -> str:
        """Such as `cpu` and `cuda`; that of ROCm is `cuda`, too."""


class Stream(Protocol):
    """The part of torch.cuda.Stream that is used."""

    @property
    def device(self) -> Any:
        """The device with its index, also if it was named without one."""


class Cuda:
    """The functions of torch.cuda that are used."""

    def event(self, *, timing: bool) -> Event:
        event: Event = sys.modules["torch"].cuda.Event(enable_timing=timing)
        return event

    def stream(self, device: Any) -> Stream:
        """Return the stream that the device's work is queued in now."""
        stream: Stream = sys.modules["torch"].cuda.current_stream(device)
        return stream

    def pinned(self, dtype: Any) -> Any:
        """Host memory for one number, which a device writes without the host waiting."""
        return sys.modules["torch"].empty((), dtype=dtype, pin_memory=True)


class Mark:
    """A moment in the work of a device: after all that was queued on it before.

    Its event is used again once nothing refers to the mark, also one that has not passed.
    """

    __slots__ = ("_event", "_free")

    def __init__(self, event: Event, free: list[Event]) -> None:
        self._event, self._free = event, free

    def passed(self) -> bool:
        """Whether the device has come here; RuntimeError if it has failed."""
        return self._event.query()

    def wait(self) -> None:
        self._event.synchronize()

    def seconds_until(self, later: Mark) -> float:
        """Return seconds by the device's clock; both marks have `timing`, and have passed."""
        return self._event.elapsed_time(later._event) / 1000

    def __del__(self) -> None:
        # not before: an event that is recorded again forgets the moment of this mark
        self._free.append(self._event)


class EventLine:
    """The events of one stream; who gives one back into `free` must be the last to hold it."""

    __slots__ = ("_cuda", "_stream", "_timing", "free")

    def __init__(self, cuda: Cuda, stream: Stream, timing: bool, free: list[Event]) -> None:
        self._cuda, self._stream, self._timing = cuda, stream, timing
        self.free = free

    def recorded(self) -> Event:
        """Return an event after all that is queued in the stream."""
        try:
            event = self.free.pop()
        except IndexError:
            event = self._cuda.event(timing=self._timing)
        event.record(self._stream)
        return event


class DevicePool:
    """Lends events and pinned numbers."""

    def __init__(self, cuda: Cuda | None = None) -> None:
        self._cuda = cuda or Cuda()
        self._events: defaultdict[tuple[Any, bool], list[Event]] = defaultdict(list)
        self._pinned: defaultdict[Any, list[Any]] = defaultdict(list)

    def line(self, device: Any, *, timing: bool = False) -> EventLine:
        """Return the line of the stream that is current on a device, whichever device is the current one."""
        stream = self._cuda.stream(device)
        # an event belongs to the device that it was first used on
        return EventLine(self._cuda, stream, timing, self._events[stream.device, timing])

    def mark(self, device: Any, *, timing: bool = False) -> Mark:
        """Return a mark of now, in the work of a device."""
        line = self.line(device, timing=timing)
        return Mark(line.recorded(), line.free)

    def pinned(self, dtype: Any) -> Any:
        try:
            return self._pinned[dtype].pop()
        except IndexError:
            return self._cuda.pinned(dtype)

    def give_back_pinned(self, number: Any) -> None:
        self._pinned[number.dtype].append(number)


POOL = DevicePool()


class DeviceScalar:
    """A number that a device still has to deliver: the copy of a tensor's value, or a time."""

    __slots__ = ("arrived", "item")

    def __init__(self, arrived: Callable[[], bool], item: Callable[[], Any]) -> None:
        self.arrived = arrived
        """Whether `item` would not wait; also where the device has failed."""
        self.item = item
        """The number, waiting for it if need be; RuntimeError if the device has failed."""


def copy_scalars(tensors: Sequence[Any], pool: DevicePool = POOL) -> list[DeviceScalar]:
    """Start copying tensors of one element from CUDA devices into pinned memory; nothing waits for them.

    What cannot be copied, for its device has failed, raises when it is read.
    """
    found: list[DeviceScalar] = []
    for device, group in groupby(tensors, key=lambda tensor: tensor.device):
        of_device = list(group)
        copies = _Copies(device, of_device, pool)
        found += [DeviceScalar(copies.arrived, partial(copies.value, i)) for i in range(len(of_device))]
    return found


class _Copies:
    """Copies from one device, and the mark after them."""

    def __init__(self, device: Any, tensors: Sequence[Any], pool: DevicePool) -> None:
        self._pool = pool
        self._pinned: list[Any] = []
        self._mark: Mark | None = None
        self._values: list[Any] | None = None
        try:
            for tensor in tensors:
                copy = pool.pinned(tensor.dtype)
                # queued behind what computes the value: the host goes on, and `_mark` tells when it is there
                copy.copy_(tensor.detach().reshape(()), non_blocking=True)
                self._pinned.append(copy)
            # one event for all: the copies are queued in one stream, in order
            self._mark = pool.mark(device)
        except Exception:  # noqa: BLE001 - a tensor's own methods are called here; `value` says so
            self._mark = None

    def arrived(self) -> bool:
        try:
            return self._values is not None or self._mark is None or self._mark.passed()
        except RuntimeError:  # the device failed
            return True

    def value(self, place: int) -> Any:
        if self._values is None:
            if self._mark is None:
                raise RuntimeError("the device has failed")
            self._mark.wait()
            self._values = [copy.item() for copy in self._pinned]
        return self._values[place]

    def __del__(self) -> None:
        # Only here nothing can read them any more, no other thread and no signal handler. What has not
        # been read may still be written by the device.
        if self._values is not None:
            for copy in self._pinned:
                self._pool.give_back_pinned(copy)
