"""The one module that knows tensors: numbers out of 0-dim tensors, without waiting for their device.

It never imports torch: a process that has not imported it has no tensors.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from monitoring.records import Record


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


class _Lost:
    """A value without a JSON form."""


def take_scalars(record: Record) -> InFlight | None:
    """Turn host tensors of one element into numbers and start the copies of those on CUDA devices.

    None when nothing is under way. A tensor on another kind of device (MPS, XPU) is read at once, which
    waits for that device.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    flight = InFlight(record)
    for key, value in record.items():
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            if value.is_cuda:
                _start_copy(torch, flight, key, value)
            else:
                record[key] = value.item()
    for device, event in flight.events.items():
        event.record(torch.cuda.current_stream(device))
    return flight if flight.copies else None


def _start_copy(torch: Any, flight: InFlight, key: str, value: Any) -> None:
    copy = torch.empty((), dtype=value.dtype, pin_memory=True)
    copy.copy_(value.detach().reshape(()), non_blocking=True)
    flight.copies[key] = copy
    if value.device not in flight.events:
        flight.events[value.device] = torch.cuda.Event()
