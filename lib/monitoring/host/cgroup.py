"""The limits that this process's control groups set, and what of them is in use; version 1, 2, or both.

    limits = CgroupLimits()
    limits.memory(total=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

A limit may be set by any group between the process's own and the top of what is mounted (a container's pod,
a job's step), and the tightest counts. The files are those of Documentation/admin-guide/cgroup-v1 and
cgroup-v2.rst of the kernel. Linux only; elsewhere nothing is limited.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from monitoring.host.small_file import text_of

# The controllers of version 2 stand under this name.
UNIFIED = ""


class MemoryLimit(NamedTuple):
    """A limit of memory and its use, in bytes."""

    total: int
    used: int
    """Used memory without file pages that the kernel can drop at once, as `docker stats` counts."""


class CpuLimit(NamedTuple):
    """A quota of the processors' time, and its use."""

    cores: float
    used_seconds: float
    """CPU time of the limited group since it was made."""


class CgroupLimits:
    """Finds the groups once; each method then reads a few small files."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` replaces the machine's root directory."""
        self._root = root
        paths = _own_groups(root)
        mounts = _mounts(root) or {name: _Mount("/", f"/sys/fs/cgroup/{name}") for name in paths}
        self._folders = {name: _chain(root, mount, paths.get(name, "/")) for name, mount in mounts.items()}

    def memory(self, total: int) -> MemoryLimit | None:
        """Return the tightest limit; None where no group allows less than `total`, the machine's bytes."""
        found = []
        for folder in self._of("memory"):
            new = self._is_unified("memory")
            # no limit is `max`, or in version 1 a number near 2**63, above any machine's memory
            limit = _number(folder / ("memory.max" if new else "memory.limit_in_bytes"))
            used = _number(folder / ("memory.current" if new else "memory.usage_in_bytes"))
            if limit is not None and used is not None and limit < total:
                droppable = _field(folder / "memory.stat", "inactive_file" if new else "total_inactive_file")
                found.append(MemoryLimit(limit, max(0, used - (droppable or 0))))
        return min(found, default=None)  # by its first field, the limit

    def swap(self, total: int) -> MemoryLimit | None:
        """Return the tightest limit of swap; None where no group allows less than the machine's `total`."""
        found = []
        for folder in self._of("memory"):
            if self._is_unified("memory"):
                limit, used = (_number(folder / f"memory.swap.{name}") for name in ("max", "current"))
            else:  # of version 1 the files count memory and swap together
                limit = _less(folder, "memory.memsw.limit_in_bytes", "memory.limit_in_bytes")
                used = _less(folder, "memory.memsw.usage_in_bytes", "memory.usage_in_bytes")
            if limit is not None and used is not None and limit < total:
                found.append(MemoryLimit(limit, used))
        return min(found, default=None)

    def cpu(self) -> CpuLimit | None:
        """Return the tightest quota, None without one. Which processors may be used is `processors`."""
        found = []
        for place, folder in enumerate(self._of("cpu")):
            cores = self._quota(folder)
            used = self._cpu_seconds(place, folder)
            if cores is not None and used is not None:
                found.append(CpuLimit(cores, used))
        return min(found, default=None)

    def cores(self) -> float | None:
        """Return how many processors' time the tightest quota allows; None without one."""
        quotas = map(self._quota, self._of("cpu"))
        return min((quota for quota in quotas if quota is not None), default=None)

    def processors(self) -> frozenset[int] | None:
        """Return the processors that the control group may use; None if unlimited or unknown."""
        names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
        # the process's own group alone: the effective set respects the groups above
        for folder in self._of("cpuset")[:1]:
            for name in names:
                text = text_of(folder / name)
                if text:
                    return frozenset(listed(text))
        return None

    def oom_kills(self) -> tuple[Path, int] | None:
        """Return how many processes the kernel has killed for want of memory, and the file that says so.

        Of the process's own group, or else of the machine; None where the system does not say.
        """
        names = {UNIFIED: "memory.events", "memory": "memory.oom_control"}
        own = [folders[0] / names[name] for name, folders in self._folders.items() if name in names]
        for counter in (*own, self._root / "proc/vmstat"):
            if (count := _field(counter, "oom_kill")) is not None:
                return counter, count
        return None

    def _of(self, controller: str) -> list[Path]:
        """The process's group and those above it; of version 2 where version 1 has no such controller."""
        return self._folders.get(controller) or self._folders.get(UNIFIED, [])

    def _is_unified(self, controller: str) -> bool:
        return controller not in self._folders

    def _quota(self, folder: Path) -> float | None:
        return _quota_v2(folder) if self._is_unified("cpu") else _quota_v1(folder)

    def _cpu_seconds(self, place: int, folder: Path) -> float | None:
        if self._is_unified("cpu"):
            used = _field(folder / "cpu.stat", "usage_usec")
            return None if used is None else used / 1e6
        counting = self._of("cpuacct")
        spent = _number(counting[place] / "cpuacct.usage") if place < len(counting) else None
        return None if spent is None else spent / 1e9


class _Mount(NamedTuple):
    root: str
    """The group that is mounted."""
    point: str


def _mounts(root: Path) -> dict[str, _Mount]:
    """Controller -> where its groups are mounted, by /proc/self/mountinfo (see proc(5))."""
    found: dict[str, _Mount] = {}
    for line in text_of(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found.setdefault(UNIFIED, _Mount(fields[3], fields[4]))
        elif kind[0] == "cgroup":
            for name in kind[2].split(","):
                found.setdefault(name, _Mount(fields[3], fields[4]))
    return found


def _own_groups(root: Path) -> dict[str, str]:
    """Controller -> the path of this process's group, by /proc/self/cgroup."""
    found: dict[str, str] = {}
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        found |= dict.fromkeys(names.split(","), path)
    return found


def _chain(root: Path, mount: _Mount, path: str) -> list[Path]:
    """Return the folders of a group and of all above it, the group's first.

    In a container the path may be that of the host, of which the mount shows a part, or lie outside of it.
    """
    top = root / mount.point.lstrip("/")
    below = path.removeprefix(mount.root.rstrip("/")) if path.startswith(mount.root.rstrip("/")) else "/"
    parts = [part for part in below.split("/") if part]
    # the path counts from another root than the mount shows (cgroup_namespaces(7))
    if ".." in parts or not top.joinpath(*parts).is_dir():
        parts = []
    return [top.joinpath(*parts[:number]) for number in range(len(parts), -1, -1)]


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = text_of(folder / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.strip().isdecimal() else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    # -1 is no quota
    return quota / period if quota is not None and quota > 0 and period else None


def _less(folder: Path, both: str, one: str) -> int | None:
    more, less = _number(folder / both), _number(folder / one)
    return None if more is None or less is None else max(0, more - less)


def listed(text: str) -> list[int]:
    """Return `0-2,7` as numbers."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found += range(int(first), int(last or first) + 1)
    return found


def _field(path: Path, name: str) -> int | None:
    """Return a number of a file that has a name and a number in each line."""
    for line in text_of(path).splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return None


def _number(path: Path) -> int | None:
    """Return the number in a file; None for `max`, and for a file that is not there."""
    text = text_of(path).strip()
    return int(text) if text.lstrip("-").isdecimal() else None
