"""Copies numbers out of 0-dim tensors without waiting for their device.

It never imports torch: a process that has not imported it has no tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from monitoring.journal.encoding.tensors import is_tensor
from monitoring.journal.records import Record
from monitoring.journal.reentrant_queue import raised_by_handler
from monitoring.telemetry.device_pool import DeviceScalar, copy_scalars


class InFlight:
    """A record with scalars that are on their way from CUDA devices."""

    def __init__(self, record: Record, scalars: Mapping[str, DeviceScalar] | None = None) -> None:
        """`scalars` are the numbers by the names of their fields."""
        self.record = record
        self.scalars = scalars or {}

    def arrived(self) -> bool:
        """Whether every copy is complete; does not wait."""
        return all(scalar.arrived() for scalar in self.scalars.values())

    def complete(self) -> Record:
        """Return the record with numbers in it, waiting for them if need be.

        What a failed device cannot give has no JSON form, and is so listed as `unserializable`.
        """
        for key, scalar in self.scalars.items():
            try:
                self.record[key] = scalar.item()
            except RuntimeError:
                self.record[key] = _Lost()
        return self.record


PLAIN = frozenset((int, float, str, bool, type(None)))
"""The types of nearly all values, none of which is on a device."""


class _Lost:
    """A value without a JSON form."""

    def __repr__(self) -> str:
        return "a tensor without a value"


def take_scalars(record: Record) -> InFlight | None:
    """Turn host tensors of one element into numbers and start the copies of those on CUDA devices.

    None when nothing is under way. A DeviceScalar is under way already and is not copied again. A tensor on
    another kind of device (MPS, XPU) is read at once, which waits for that device. One that cannot be read (a
    meta tensor, a device that failed) is lost.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    # nearly all values are plain, and to look a type up costs a tenth of asking whether it is a tensor's
    special = {key: value for key, value in record.items() if type(value) not in PLAIN}
    if not special:
        return None
    # by its type, for a value may refuse to say its class
    scalars: dict[str, DeviceScalar] = {
        key: value  # type: ignore[misc]
        for key, value in special.items()
        if issubclass(type(value), DeviceScalar)
    }
    on_device = {}
    for key, value in special.items():
        if key in scalars or not is_tensor(value):
            continue
        try:
            if value.numel() == 1:  # type: ignore[attr-defined]
                if value.is_cuda:  # type: ignore[attr-defined]
                    on_device[key] = value
                    record[key] = None  # the copy is on its way, and the tensor may hold a whole graph
                else:
                    record[key] = value.item()  # type: ignore[attr-defined]
        except Exception as error:
            # the methods of a subclass are its author's
            if type(value) is torch.Tensor and raised_by_handler(error):
                raise
            record[key] = _Lost()
    scalars |= dict(zip(on_device, copy_scalars(list(on_device.values())), strict=True))
    return InFlight(record, scalars) if scalars else None
