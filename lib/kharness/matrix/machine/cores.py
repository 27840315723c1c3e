"""The CPU cores that we may use: where cells are bound to cores, no two share one."""

from __future__ import annotations

import os
from pathlib import Path

Core = tuple[int, ...]
"""The processors of one physical core, by their numbers: two where it runs two threads."""


def usable_cores(root: Path = Path("/")) -> list[Core]:
    """The cores of our affinity, as many as the quota of our cgroup pays for; at least one.

    `root` has `sys` and `proc`.
    """
    processors = _affinity()
    cores: dict[Core, None] = {}
    for processor in processors:
        siblings = _siblings(root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        cores[tuple(sorted((siblings & set(processors)) | {processor}))] = None
    quota = cpu_quota(root)
    return list(cores) if quota is None else list(cores)[: max(1, int(quota))]


def cpu_quota(root: Path = Path("/")) -> float | None:
    """How many CPUs' worth of time our cgroup gets; None without a limit.

    The nearest limit counts: version 2's cpu.max, or version 1's cpu.cfs_quota_us.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            quotas.append(_quota(folder))
            if folder == top:
                break
    found = [quota for quota in quotas if quota is not None]
    return min(found) if found else None


def _quota(group: Path) -> float | None:
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):  # no such file, or the word max
        return None


def _affinity() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _siblings(file: Path) -> set[int]:
    """Processors from a list such as `0-1,8`; none where the system does not say."""
    found: set[int] = set()
    try:
        for part in file.read_text().strip().split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    except (OSError, ValueError):
        return set()
    return found
