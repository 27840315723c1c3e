"""Samples of a machine but for its GPUs: processors, memory, disk, network, temperatures and open files.

Read from Linux' /proc and /sys and from the limits of the process's control groups, where they are tighter
than the machine (host.cgroup): a container that may use two cores and 8 GB is full at 8 GB. Elsewhere most
values are None. Nothing is made up: a rate is None in the first sample. GB are 1e9 bytes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from monitoring.host.cgroup import CgroupLimits, CpuLimit
from monitoring.host.other_work import MachineWork, WorkReading, processor_ticks
from monitoring.host.small_file import text_of

GB = 1e9


# The kernel's drivers for sensors in processors (Documentation/hwmon), and of systems on a chip.
PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")

# /proc/diskstats counts in these, whatever a disk's sectors are (Documentation/admin-guide/iostats.rst).
SECTOR_BYTES = 512

# A look at the training's processes goes through all of the machine, and takes a 1000th of the time at most.
MOST_EFFORT = 1000


class MachineSample(NamedTuple):
    """One look at a machine, and at the processes of one training on it; percent are from 0 to 100."""

    cpu_usage_percent: float | None = None
    """Busy share of the processors that may be used, since the sample before."""
    cpu_count: float | None = None
    """Number of these processors: 1.5 with a quota of one and a half."""
    load_average_1m: float | None = None
    trainer_cpu_percent: float | None = None
    """The same, of the training's processes on this machine and of all that they have started."""
    trainer_memory_gb: float | None = None
    """Resident memory of these; what several share counts for each."""
    trainer_processes: int | None = None
    trainer_open_files: int | None = None
    """File descriptors of these; None where their user is another."""
    memory_usage_percent: float | None = None
    memory_used_gb: float | None = None
    """Memory that cannot be had back at once: total less available."""
    memory_total_gb: float | None = None
    swap_usage_percent: float | None = None
    """Used share of the swap; None without any."""
    swap_used_gb: float | None = None
    swap_total_gb: float | None = None
    disk_usage_percent: float | None = None
    """Used share of the file system of the run directory; these three count as `df` does."""
    disk_free_gb: float | None = None
    disk_total_gb: float | None = None
    disk_read_bytes: int | None = None
    """Bytes read by all disks of the machine, since it was booted."""
    disk_written_bytes: int | None = None
    network_sent_bytes: int | None = None
    """Bytes sent on all interfaces but the loopback, since the machine was booted or the container began."""
    network_received_bytes: int | None = None
    cpu_temperature_celsius: float | None = None
    """Temperature of the hottest sensor in a processor."""
    temperatures: Mapping[str, float] | None = None
    """All sensors by chip and label, in degrees Celsius; None without any."""
    open_files: int | None = None
    """File descriptors on the whole machine."""
    open_files_limit: int | None = None
    cgroup_limits: list[str] | None = None
    """Which of `cpu`, `memory` and `swap` are those of a control group, not of the machine."""


def probe(root: Path) -> None:
    """Return None: the machine has no GPU here; `MachineSampler` samples it."""


class MachineSampler:
    """Samples this machine; one thread calls it."""

    def __init__(
        self, directory: Path, *, trainer: MachineWork | None = None, root: Path = Path("/")
    ) -> None:
        """The disk is that of `directory`, `trainer` are the training's processes.

        `root` replaces the machine's root directory.
        """
        self._directory = directory
        self._trainer = trainer
        self._proc, self._sys = root / "proc", root / "sys"
        self._limits = CgroupLimits(root)
        self._sensors = _sensors(self._sys / "class/hwmon")
        self._disks = _disks(self._sys / "block")
        self._before: _CpuTimes | None = None
        self._work: tuple[WorkReading, int] | None = None
        self._trainer_values: dict[str, float | int | None] = {}
        self._trainer_due = 0.0

    def sample(self) -> MachineSample:
        """Return one look, which takes a fraction of a millisecond; never raises what the system refuses."""
        values: dict[str, object] = {}
        limited = [*self._look_at_cpu(values), *self._look_at_memory(values)]
        self._look_at_disk(values)
        self._look_at_network(values)
        self._look_at_sensors(values)
        self._look_at_files(values)
        if self._trainer is not None:
            self._look_at_trainer(self._trainer, values)
        return MachineSample(cgroup_limits=limited, **values)  # type: ignore[arg-type]

    def _look_at_cpu(self, values: dict[str, object]) -> list[str]:
        with contextlib.suppress(OSError):
            values["load_average_1m"] = os.getloadavg()[0]
        limit = self._limits.cpu()
        now = _CpuTimes.read(self._proc / "stat", self._limits.processors(), limit)
        if now is None:
            return []
        values["cpu_count"] = now.cores
        if self._before is not None:
            values["cpu_usage_percent"] = now.percent_since(self._before)
        self._before = now
        return ["cpu"] if now.is_limited else []

    def _look_at_memory(self, values: dict[str, object]) -> list[str]:
        info = _meminfo(self._proc / "meminfo")
        limited = []
        if "MemTotal" in info and "MemAvailable" in info:
            total, used = info["MemTotal"], info["MemTotal"] - info["MemAvailable"]
            if (limit := self._limits.memory(total)) is not None:
                limited.append("memory")
                total, used = limit
            _set_share(values, "memory", used, total)
        if "SwapTotal" in info and "SwapFree" in info:
            total, used = info["SwapTotal"], info["SwapTotal"] - info["SwapFree"]
            if total and (limit := self._limits.swap(total)) is not None:
                limited.append("swap")
                total, used = limit
            _set_share(values, "swap", used, total)
        return limited

    def _look_at_disk(self, values: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._directory)
            free, used = disk.f_bavail * disk.f_frsize, (disk.f_blocks - disk.f_bfree) * disk.f_frsize
            values["disk_free_gb"], values["disk_total_gb"] = free / GB, disk.f_blocks * disk.f_frsize / GB
            # what only the superuser may fill counts as used, as in `df`
            values["disk_usage_percent"] = 100 * used / (used + free) if used + free else None
        read = written = 0
        lines = [line.split() for line in text_of(self._proc / "diskstats").splitlines()]
        counted = [fields for fields in lines if len(fields) > 9 and fields[2] in self._disks]
        for fields in counted:
            # After two numbers of the device and its name: sectors read are the third field, sectors written
            # the seventh.
            read, written = read + int(fields[5]), written + int(fields[9])
        if counted:
            values["disk_read_bytes"] = read * SECTOR_BYTES
            values["disk_written_bytes"] = written * SECTOR_BYTES

    def _look_at_network(self, values: dict[str, object]) -> None:
        sent = received = 0
        # Two lines are the heading; then 8 numbers received and 8 sent, the bytes first in each.
        lines = text_of(self._proc / "net/dev").splitlines()[2:]
        for line in lines:
            name, _, numbers = line.partition(":")
            if name.strip() != "lo":
                fields = numbers.split()
                received, sent = received + int(fields[0]), sent + int(fields[8])
        if lines:
            values["network_sent_bytes"], values["network_received_bytes"] = sent, received

    def _look_at_sensors(self, values: dict[str, object]) -> None:
        found = {
            name: int(text) / 1000
            for name, path in self._sensors.items()
            if (text := text_of(path).strip()).lstrip("-").isdecimal()
        }
        if found:
            values["temperatures"] = found
            hottest = [found[name] for name in found if name.split("/")[0] in PROCESSOR_SENSORS]
            values["cpu_temperature_celsius"] = max(hottest, default=None)

    def _look_at_files(self, values: dict[str, object]) -> None:
        # Allocated, free (always 0 since Linux 2.6) and the most there can be
        # (Documentation/admin-guide/sysctl/fs.rst).
        numbers = text_of(self._proc / "sys/fs/file-nr").split()
        if len(numbers) == 3:
            values["open_files"], values["open_files_limit"] = int(numbers[0]), int(numbers[2])

    def _look_at_trainer(self, trainer: MachineWork, values: dict[str, object]) -> None:
        """Look at the training's processes; less often where going through all of the machine takes long."""
        begun, cpu = time.monotonic(), time.thread_time()
        if begun >= self._trainer_due and (now := trainer.read()) is not None:
            # Of this thread's own CPU time: a look that waited for a busy processor has cost nothing.
            self._trainer_due = begun + MOST_EFFORT * (time.thread_time() - cpu)
            found = self._trainer_values
            if not trainer.pids:  # it has not begun, or is gone: what it did last is not what it does
                found.clear()
                return
            found["trainer_memory_gb"] = trainer.resident_bytes / GB
            found["trainer_processes"] = len(trainer.pids)
            found["trainer_open_files"] = _open_files(self._proc, trainer.pids)
            found["trainer_cpu_percent"] = self._trainer_share(now, trainer.num_roots)
        values.update(self._trainer_values)

    def _trainer_share(self, now: WorkReading, ranks: int) -> float | None:
        """Percent since the last look; None for the first, also of a rank that has joined since."""
        before, self._work = self._work, (now, ranks)
        if before is None or before[1] != ranks or self._before is None:
            return None
        passed = now.clock - before[0].clock
        share = (now.own - before[0].own) / passed / self._before.cores if passed > 0 else 0.0
        return min(100.0, max(0.0, 100 * share))


class _CpuTimes(NamedTuple):
    """CPU time of the processors that may be used, or of a quota; seconds or ticks since some moment."""

    clock: float
    cores: float
    total: float
    busy: float
    is_limited: bool

    @classmethod
    def read(cls, stat: Path, processors: frozenset[int] | None, limit: CpuLimit | None) -> _CpuTimes | None:
        """Return the times; None where /proc/stat does not say."""
        clock = time.monotonic()
        every = processor_ticks(stat)
        own = [ticks for number, ticks in every.items() if processors is None or number in processors]
        if not own:
            return None
        cores = len(own)
        # a quota: the CPU time of its group, out of the time that it allows
        if limit is not None and limit.cores < cores:
            return cls(clock, limit.cores, clock * limit.cores, limit.used_seconds, True)
        total, busy = map(sum, zip(*own, strict=True))
        return cls(clock, cores, total, busy, cores < len(every))

    def percent_since(self, before: _CpuTimes) -> float | None:
        """Return the busy share; None if no time has passed, or there are other processors now."""
        total = self.total - before.total
        if total <= 0 or self.cores != before.cores:
            return None
        return min(100.0, max(0.0, 100 * (self.busy - before.busy) / total))


def _set_share(values: dict[str, object], name: str, used: int, total: int) -> None:
    used = min(max(0, used), total)
    values[f"{name}_used_gb"], values[f"{name}_total_gb"] = used / GB, total / GB
    values[f"{name}_usage_percent"] = 100 * used / total if total else None


def _meminfo(path: Path) -> dict[str, int]:
    """Return /proc/meminfo in bytes."""
    found = {}
    for line in text_of(path).splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdecimal():
            found[name] = int(number[0]) * 1024
    return found


def _sensors(folder: Path) -> dict[str, Path]:
    """`CHIP/LABEL` -> the file with thousandths of a degree (Documentation/hwmon/sysfs-interface.rst)."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("hwmon*/temp*_input")):
        chip = text_of(path.parent / "name").strip() or path.parent.name
        place = path.name.removesuffix("_input")
        label = text_of(path.with_name(f"{place}_label")).strip() or place
        name = f"{chip}/{label}"
        found[name if name not in found else f"{chip} {path.parent.name}/{label}"] = path
    return found


def _disks(folder: Path) -> frozenset[str]:
    """Whole disks with hardware of their own: no partition, and no device that is made of others."""
    # Bytes through LVM, RAID or a loop device pass a disk below them too, and would count twice.
    return frozenset(path.name for path in folder.glob("*") if (path / "device").exists())


def _open_files(proc: Path, pids: Sequence[int]) -> int | None:
    total = None
    for pid in pids:
        folder = f"{proc}/{pid}/fd"
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            # since Linux 6.2 the size of the folder is how many files there are
            total = (total or 0) + (os.stat(folder).st_size or len(os.listdir(folder)))
    return total
