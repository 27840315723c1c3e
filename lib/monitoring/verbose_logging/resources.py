"""This machine and its present use, as verbose logs have them; what cannot be read is null.

GB are 1e9 bytes.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from monitoring.gpu.sample import MIB
from monitoring.host.environment import hardware, versions
from monitoring.host.other_work import MachineWork
from monitoring.journal.records import Record
from monitoring.samplers.machine import GB, MachineSampler


def system_info(folder: Path) -> Record:
    """Processor, memory, disk of a folder, network, GPUs, operating system and versions."""
    return {
        "platform": platform.platform(),
        "hardware": hardware(),
        "versions": versions(),
        "gpu": {"devices": torch_devices()},
        **machine_info(folder),
    }


def machine_info(folder: Path | None) -> Record:
    """Processor, memory, disk of a folder, and network now; null without a folder."""
    return _parts(MachineSampler(folder).sample()._asdict() if folder is not None else {}, _INFO)


class ResourceReader:
    """Reads how the machine and a process with its children are used; rates are since the last reading."""

    def __init__(self, pid: int, folder: Path, *, complete: bool = False) -> None:
        """`complete` adds swap, load, temperatures, traffic and open files; the disk is that of `folder`."""
        self._sampler = MachineSampler(folder, trainer=MachineWork(pid))
        self._complete = complete

    def read(self, devices: Sequence[Record] = ()) -> Record:
        """Return one reading, with the GPUs as they were sampled."""
        sample = self._sampler.sample()._asdict()
        return usage_of(sample, devices, time.time(), complete=self._complete)


def usage_of(
    sample: Mapping[str, object], devices: Sequence[Record], sampled_at: float, *, complete: bool
) -> Record:
    """Return the use of resources by the values of a MachineSample, at UTC epoch seconds."""
    found = {"sampled_at": iso_time(sampled_at), **_parts(sample, _USAGE), "gpu": {"devices": list(devices)}}
    return found | _parts(sample, _COMPLETE) if complete else found


_MEMORY = {
    "usage_percent": "memory_usage_percent",
    "used_gb": "memory_used_gb",
    "total_gb": "memory_total_gb",
}
_SWAP = {"usage_percent": "swap_usage_percent", "used_gb": "swap_used_gb", "total_gb": "swap_total_gb"}
_DISK = {"usage_percent": "disk_usage_percent", "free_gb": "disk_free_gb", "total_gb": "disk_total_gb"}

# Part of a log -> its name of a value -> the name in a sample.
_USAGE = {
    "cpu": {"usage_percent": "cpu_usage_percent", "num_cores": "cpu_count"},
    "memory": _MEMORY,
    "disk": _DISK,
    "process": {"cpu_percent": "trainer_cpu_percent", "memory_gb": "trainer_memory_gb"},
}
_COMPLETE = {
    "swap": _SWAP,
    "load": {"average_1m": "load_average_1m"},
    "temperatures": {"cpu_celsius": "cpu_temperature_celsius", "all_celsius": "temperatures"},
    "disk_io": {"read_bytes": "disk_read_bytes", "written_bytes": "disk_written_bytes"},
    "network": {"sent_bytes": "network_sent_bytes", "received_bytes": "network_received_bytes"},
    "files": {"open": "open_files", "limit": "open_files_limit", "of_process": "trainer_open_files"},
    "processes": {"of_training": "trainer_processes"},
}
_INFO = {
    "cpu": {"num_cores": "cpu_count", "load_average_1m": "load_average_1m"},
    "memory": _MEMORY,
    "swap": _SWAP,
    "disk": _DISK,
    "network": {"sent_bytes": "network_sent_bytes", "received_bytes": "network_received_bytes"},
    "limits": {"of_control_groups": "cgroup_limits"},
}


def _parts(sample: Mapping[str, object], parts: Mapping[str, Mapping[str, str]]) -> Record:
    return {part: {shown: sample.get(name) for shown, name in names.items()} for part, names in parts.items()}


def iso_time(seconds: float) -> str:
    """UTC epoch seconds as the log has them: 2025-01-10T11:30:00.123456, always UTC."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def gpu_device(values: Mapping[str, Any], *, complete: bool) -> Record:
    """Return a GPU as a log has it, from the values that gpu_stats.jsonl has."""
    used, total = values.get("memory_used_mb"), values.get("memory_total_mb")
    share = 100 * used / total if used is not None and total else values.get("memory_percent")
    names = ("index", "name", "utilization_percent")
    of_all = ("temperature_celsius", "power_draw_watts", "clock_sm_mhz", "throttle_reasons")
    return {
        **{name: values.get(name) for name in names},
        "memory_usage_percent": share,
        "memory_used_gb": used * MIB / GB if used is not None else None,
        "memory_total_gb": total * MIB / GB if total is not None else None,
        **{name: values.get(name) for name in of_all if complete},
    }


def torch_devices() -> list[Record]:
    """Return the GPUs that this process computes on, by torch alone; it begins nothing on one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    found: list[Record] = []
    for index in range(torch.cuda.device_count()):
        # of the device, by all processes, unlike the counts of torch's allocator
        free, total = torch.cuda.mem_get_info(index)
        found.append(
            {
                "index": index,
                "name": torch.cuda.get_device_name(index),
                "memory_usage_percent": 100 * (total - free) / total,
                "memory_used_gb": (total - free) / GB,
                "memory_total_gb": total / GB,
            }
        )
    return found
