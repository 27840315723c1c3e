"""CUDA events and pinned memory, one pool a process: each is used again once it has passed.

It never imports torch: a process that has not imported it has no tensors.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol


class Event(Protocol):
    """The part of torch.cuda.Event that is used."""

    def record(self, stream: Any, /) -> None: ...

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds from this event to that one."""


class Cuda:
    """What is taken from torch."""

    def event(self, *, timing: bool) -> Event:
        event: Event = sys.modules["torch"].cuda.Event(enable_timing=timing)
        return event

    def stream(self, device: Any) -> Any:
        """The one that the device's work is queued in now."""
        return sys.modules["torch"].cuda.current_stream(device)

    def pinned(self, dtype: Any) -> Any:
        """Host memory for one number, which a device writes without the host waiting."""
        return sys.modules["torch"].empty((), dtype=dtype, pin_memory=True)


class DevicePool:
    """Lends events and pinned numbers; who gives one back must be the last to hold it."""

    def __init__(self, cuda: Cuda | None = None) -> None:
        self._cuda = cuda or Cuda()
        self._events: defaultdict[tuple[str, bool], list[Event]] = defaultdict(list)
        self._pinned: defaultdict[Any, list[Any]] = defaultdict(list)

    def recorded(self, device: Any, *, timing: bool = False) -> Event:
        """An event behind all that is queued on the device; with `timing` it can be compared with others."""
        free = self._events[str(device), timing]  # an event belongs to the device that it was first used on
        event = free.pop() if free else self._cuda.event(timing=timing)
        event.record(self._cuda.stream(device))
        return event

    def give_back(self, event: Event, device: Any, *, timing: bool = False) -> None:
        """An event that has passed, or that nobody waits for any more."""
        self._events[str(device), timing].append(event)

    def pinned(self, dtype: Any) -> Any:
        free = self._pinned[dtype]
        return free.pop() if free else self._cuda.pinned(dtype)

    def give_back_pinned(self, number: Any) -> None:
        self._pinned[number.dtype].append(number)


POOL = DevicePool()


class DeviceScalar:
    """A number that is being copied from a device: a 0-dim tensor's value, as it was when the copy began."""

    def __init__(self, copies: _Copies, place: int) -> None:
        self._copies = copies
        self._place = place

    def arrived(self) -> bool:
        """Whether `item` would not wait; also where the device has failed."""
        return self._copies.arrived()

    def item(self) -> Any:
        """The number, waiting for it if need be; RuntimeError if the device has failed."""
        return self._copies.values()[self._place]


def copy_scalars(tensors: Sequence[Any], pool: DevicePool = POOL) -> list[DeviceScalar]:
    """Start copying tensors of one element from CUDA devices into pinned memory; nothing waits for them.

    What cannot be copied, for its device has failed, raises when it is read.
    """
    found: list[DeviceScalar] = []
    for device, group in groupby(tensors, key=lambda tensor: tensor.device):
        of_device = list(group)
        copies = _Copies(device, of_device, pool)
        found += [DeviceScalar(copies, place) for place in range(len(of_device))]
    return found


class _Copies:
    """Copies from one device, with an event behind them."""

    def __init__(self, device: Any, tensors: Sequence[Any], pool: DevicePool) -> None:
        self._device, self._pool = device, pool
        self._pinned: list[Any] = []
        self._event: Event | None = None
        self._values: list[Any] | None = None
        try:
            for tensor in tensors:
                copy = pool.pinned(tensor.dtype)
                copy.copy_(tensor.detach().reshape(()), non_blocking=True)
                self._pinned.append(copy)
            self._event = pool.recorded(device)
        except Exception:  # noqa: BLE001 - a tensor's own methods are called here; `values` says so
            self._event = None

    def arrived(self) -> bool:
        try:
            return self._values is not None or self._event is None or self._event.query()
        except RuntimeError:  # the device failed
            return True

    def values(self) -> list[Any]:
        if self._values is None:
            if self._event is None:
                raise RuntimeError("the device has failed")
            self._event.synchronize()
            self._values = [copy.item() for copy in self._pinned]
        return self._values

    def __del__(self) -> None:
        # Only here nobody can read them any more, in no other thread and in no signal handler.
        if self._values is not None and self._event is not None:
            self._pool.give_back(self._event, self._device)
            for copy in self._pinned:
                self._pool.give_back_pinned(copy)
