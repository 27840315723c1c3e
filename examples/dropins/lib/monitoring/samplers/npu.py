"""Accelerators that say in /sys/class/npu/NAME/busy_percent what they do."""

from collections.abc import Sequence
from pathlib import Path

from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample, Sampler


def probe(root: Path) -> Sampler | None:
    """All of this machine, None if it has none."""
    folders = sorted((root / "sys/class/npu").glob("*"))
    return Npu(folders) if folders else None


class Npu:
    """Reads one file per device."""

    vendor = "npu"

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self.num_devices = len(folders)

    def devices(self) -> Sequence[DeviceInfo]:
        return [DeviceInfo(i, None, folder.name, "npu") for i, folder in enumerate(self._folders)]

    def sample(self) -> Sequence[GpuSample]:
        return [
            device.sample()._replace(utilization_percent=float((folder / "busy_percent").read_text()))
            for device, folder in zip(self.devices(), self._folders, strict=True)
        ]

    def events(self) -> Sequence[GpuEvent]:
        return []

    def close(self) -> None: ...
