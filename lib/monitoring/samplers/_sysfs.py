"""Samples GPUs whose kernel driver shows values in files: kept open, and read with one `pread` each."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from monitoring.gpu.sample import SLOT, DeviceInfo, GpuEvent, GpuSample
from monitoring.host.small_file import text_of

# Errors of reading a device that was unplugged or has failed for good; any other is about one value.
GONE = (errno.ENODEV, errno.ENXIO)


class DeviceGoneError(Exception):
    """The device of a file is gone."""


class KeptFile:
    """A file of one number; a file that is not there, or that we may not read, holds none."""

    def __init__(self, path: Path | None) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):
            if path is not None:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def number(self) -> int | None:
        """Return the file's current number; DeviceGoneError if the device is gone."""
        if self._fd < 0:
            return None
        try:
            return int(os.pread(self._fd, 64, 0))
        except OSError as error:
            if error.errno in GONE:
                raise DeviceGoneError(os.strerror(error.errno)) from error
            return None  # asleep, busy or not permitted
        except ValueError:
            return None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Card(NamedTuple):
    """A graphics card of the kernel's."""

    path: Path
    """/sys/class/drm/cardN."""
    device: Path
    """The folder of its PCI device."""
    pci_bus_id: str | None
    hwmon: Path | None
    """The folder of its sensors."""


class Value(NamedTuple):
    """A value of a sample: its file, if it has one, and the divisor to our unit; 0 leaves it an integer."""

    name: str
    path: Path | None
    divisor: int = 0


def cards(root: Path, vendor_id: str) -> list[Card]:
    """Return the cards of a vendor (`0x1002`), in the order of their PCI addresses."""
    found = []
    for path in (root / "sys/class/drm").glob("card*"):
        number = re.fullmatch(r"card(\d+)", path.name)
        if number and text(path / "device/vendor") == vendor_id:
            address = (path / "device").resolve().name
            is_address = re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address)
            card = Card(path, path / "device", address if is_address else None, _sensors(path / "device"))
            found.append((card.pci_bus_id or "", int(number[1]), card))
    return [card for _, _, card in sorted(found)]


def _sensors(device: Path) -> Path | None:
    """Return the folder of the card's sensors; i915 also has one for each part of it (`i915_gt0`)."""
    folders = sorted((device / "hwmon").glob("hwmon*"))
    return next((folder for folder in folders if "_gt" not in (text(folder / "name") or "")), None)


def text(path: Path) -> str | None:
    """Return the text of a small file, None if it cannot be read or is empty."""
    return text_of(path).strip() or None


def labeled(hwmon: Path | None, kind: str) -> dict[str, Path]:
    """Return the sensors of a kind (`temp`, `energy`) by their labels, or `1`, `2` where they have none."""
    found = {}
    for path in sorted(hwmon.glob(f"{kind}[0-9]*_input")) if hwmon is not None else ():
        number = path.name.removeprefix(kind).removesuffix("_input")
        found[text(path.with_name(f"{kind}{number}_label")) or number] = path
    return found


def node(device: Path) -> int | None:
    """Return the memory node that a device is near to; None on a machine with one."""
    number = text(device / "numa_node")
    return int(number) if number is not None and number.isdigit() else None


class Derive(Protocol):
    """Computes a vendor's further values from those that were read, and from files of its own."""

    def __call__(self, values: list[Any]) -> None:
        """Complete the values of a sample, in the order of GpuSample's fields."""

    def close(self) -> None:
        """Close its files."""


class SysfsGpu:
    """One card, its files, and what a vendor makes of them."""

    def __init__(self, info: DeviceInfo, card: Card, values: Sequence[Value], derive: Derive) -> None:
        self.info = info
        self._there = card.device / "vendor"
        self._files = [(SLOT[value.name], KeptFile(value.path), value.divisor) for value in values]
        self._derive = derive
        self._template: list[Any] = list(info.sample())

    def sample(self) -> GpuSample:
        """Return one look; a later file of the same value counts only where an earlier one says nothing."""
        values = self._template.copy()
        num_answers = 0
        try:
            os.stat(self._there)
            for slot, file, divisor in self._files:
                if values[slot] is None:
                    number = file.number()
                    if number is not None:
                        values[slot] = number / divisor if divisor else number
                        num_answers += 1
            self._derive(values)
        except (DeviceGoneError, FileNotFoundError) as error:
            reason = str(error) if isinstance(error, DeviceGoneError) else "its files are gone"
            return self.info.sample("lost", reason)
        if not num_answers and any(file.is_open for _, file, _ in self._files):
            return self.info.sample("error", "none of its files gives a value")
        total, used = values[SLOT["memory_total_mb"]], values[SLOT["memory_used_mb"]]
        if total and used is not None:
            values[SLOT["memory_percent"]] = 100 * used / total
        return GpuSample._make(values)

    def close(self) -> None:
        for _, file, _ in self._files:
            file.close()
        self._derive.close()


def discrete(gpus: Sequence[SysfsGpu]) -> list[SysfsGpu]:
    """Return the cards that are no part of a processor, or all if there are none; close the others."""
    kept = [gpu for gpu in gpus if not gpu.info.integrated] or list(gpus)
    for gpu in gpus:
        if gpu not in kept:
            gpu.close()
    return kept


class SysfsSampler:
    """Samples some cards; their drivers report no events."""

    def __init__(self, vendor: str, gpus: Sequence[SysfsGpu], *, num_devices: int) -> None:
        self.vendor = vendor
        self.num_devices = num_devices
        self._gpus = gpus

    def devices(self) -> Sequence[DeviceInfo]:
        return [gpu.info for gpu in self._gpus]

    def sample(self) -> Sequence[GpuSample]:
        return [gpu.sample() for gpu in self._gpus]

    def events(self) -> Sequence[GpuEvent]:
        return []

    def close(self) -> None:
        for gpu in self._gpus:
            gpu.close()
