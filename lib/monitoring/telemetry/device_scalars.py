"""The one module that knows tensors: numbers out of 0-dim tensors, without waiting for their device.

It never imports torch: a process that has not imported it has no tensors.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from monitoring.journal.encoding.tensors import is_tensor
from monitoring.journal.records import Record


@dataclass(frozen=True)
class InFlight:
    """A record with scalars that are being copied from CUDA devices into pinned memory."""

    record: Record
    copies: dict[str, Any] = field(default_factory=dict)
    """Pinned tensors by field name; their values count once every event has passed."""
    events: dict[Any, Any] = field(default_factory=dict)
    """One CUDA event a device, recorded behind the device's copies."""

    def arrived(self) -> bool:
        """Whether every copy is complete; does not wait."""
        try:
            return all(event.query() for event in self.events.values())
        except RuntimeError:  # the device failed; complete() tells which values are lost
            return True

    def complete(self) -> Record:
        """The record with numbers in it, waiting for them if need be.

        What a failed device cannot give has no JSON form, and is so listed as `unserializable`.
        """
        for key, copy in self.copies.items():
            try:
                for event in self.events.values():
                    event.synchronize()
                self.record[key] = copy.item()
            except RuntimeError:
                self.record[key] = _Lost()
        return self.record


_PLAIN = frozenset((int, float, str, bool, type(None)))


class _Lost:
    """A value without a JSON form."""

    def __repr__(self) -> str:
        return "a tensor without a value"


def take_scalars(record: Record) -> InFlight | None:
    """Turn host tensors of one element into numbers and start the copies of those on CUDA devices.

    None when nothing is under way. A tensor on another kind of device (MPS, XPU) is read at once, which
    waits for that device. One that cannot be read (a meta tensor, a device that failed) is lost.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    # nearly all values are plain, and to look a type up costs a tenth of asking whether it is a tensor's
    tensors = [key for key, value in record.items() if type(value) not in _PLAIN and is_tensor(value)]
    if not tensors:
        return None
    flight = InFlight(record)
    for key in tensors:
        value = record[key]
        try:
            if value.numel() == 1:  # type: ignore[attr-defined]
                _take(torch, flight, key, value)
        except Exception:  # noqa: BLE001 - a tensor's own methods are called here; its field is named as lost
            flight.copies.pop(key, None)
            record[key] = _Lost()
    for device, event in flight.events.items():
        _record(torch, flight, device, event)
    return flight if flight.copies else None


def _take(torch: Any, flight: InFlight, key: str, value: Any) -> None:
    if not value.is_cuda:
        flight.record[key] = value.item()
        return
    copy = torch.empty((), dtype=value.dtype, pin_memory=True)
    copy.copy_(value.detach().reshape(()), non_blocking=True)
    flight.copies[key] = copy
    if value.device not in flight.events:
        flight.events[value.device] = torch.cuda.Event()


def _record(torch: Any, flight: InFlight, device: Any, event: Any) -> None:
    try:
        event.record(torch.cuda.current_stream(device))
    except RuntimeError:  # the device failed: its copies never arrive
        for key in flight.copies:
            flight.record[key] = _Lost()
        flight.copies.clear()
