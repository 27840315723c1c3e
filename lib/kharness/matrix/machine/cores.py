"""The CPU cores that we may use: where cells are bound to cores, no two share one."""

from __future__ import annotations

import os
from pathlib import Path

from monitoring.host.cgroup import CgroupLimits, listed
from monitoring.host.small_file import text_of

Core = tuple[int, ...]
"""The processors of one physical core, by their numbers: two where it runs two threads."""


def usable_cores(root: Path = Path("/")) -> list[Core]:
    """The cores of our affinity, as many as the quota of our cgroup pays for; at least one.

    `root` has `sys` and `proc`.
    """
    every = range(os.cpu_count() or 1)
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else every
    cores: dict[Core, None] = {}
    for processor in processors:
        # a list such as `0-1,8`; nothing where the system does not say
        text = text_of(root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        cores[tuple(sorted((set(listed(text)) & set(processors)) | {processor}))] = None
    quota = CgroupLimits(root).cores()
    return list(cores) if quota is None else list(cores)[: max(1, int(quota))]
