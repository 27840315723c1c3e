"""Limits of control groups, in trees with the files and contents that kernels write; sizes are round numbers.

The mounts and the files of version 1 are those of a machine with both versions; those of version 2 are of
Documentation/admin-guide/cgroup-v2.rst, in the places in which Docker, Slurm and systemd make groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from monitoring.host.cgroup import CgroupLimits, CpuLimit, MemoryLimit

MACHINE = 64_000_000_000
UNLIMITED = "9223372036854771712\n"

V2_MOUNT = "31 23 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw\n"
V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 {root} /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def tree(root: Path, files: Mapping[str, str]) -> CgroupLimits:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return CgroupLimits(root)


def version_2(mount: str, group: str, limits: Mapping[str, str]) -> dict[str, str]:
    """A process in `group`; `limits` by path below the mount."""
    return {
        "proc/self/mountinfo": mount,
        "proc/self/cgroup": f"0::{group}\n",
        **{f"sys/fs/cgroup/{name}": content for name, content in limits.items()},
    }


def memory_2(limit: str, used: int, inactive: int) -> dict[str, str]:
    stat = f"anon 1\nfile 2\ninactive_anon 3\nactive_anon 4\ninactive_file {inactive}\nactive_file 6\n"
    return {"memory.max": f"{limit}\n", "memory.current": f"{used}\n", "memory.stat": stat}


def below(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}{name}": content for name, content in files.items()}


def test_container_of_version_2_with_a_namespace_of_its_own(tmp_path: Path) -> None:
    """Docker: the group is the root of what is mounted."""
    quota = {"cpu.max": "150000 100000\n", "cpu.stat": "usage_usec 2500000\nuser_usec 1\n"}
    swap = {"memory.swap.max": "1000000000\n", "memory.swap.current": "250000000\n"}
    cpus = {"cpuset.cpus.effective": "0-2,7\n"}
    files = {**memory_2("8000000000", 6_000_000_000, 1_000_000_000), **quota, **swap, **cpus}
    limits = tree(tmp_path, version_2(V2_MOUNT, "/", files))
    assert limits.memory(MACHINE) == MemoryLimit(8_000_000_000, 5_000_000_000)
    assert limits.swap(MACHINE) == MemoryLimit(1_000_000_000, 250_000_000)
    assert limits.cpu() == CpuLimit(1.5, 2.5)
    assert limits.processors() == frozenset({0, 1, 2, 7})


def test_the_tightest_group_above_a_job_counts(tmp_path: Path) -> None:
    """Slurm: the job's group is limited, its step's and its task's are not."""
    job = memory_2("4000000000", 3_000_000_000, 500_000_000)
    step = memory_2("max", 2_900_000_000, 400_000_000)
    quota = {"cpu.max": "400000 100000\n", "cpu.stat": "usage_usec 9000000\n"}
    free = {"cpu.max": "max 100000\n", "cpu.stat": "usage_usec 8000000\n"}
    files = {
        **below("system.slice/job_7/", {**job, **quota}),
        **below("system.slice/job_7/step_0/", {**step, **free}),
        "system.slice/job_7/step_0/task_0/memory.max": "max\n",
    }
    limits = tree(tmp_path, version_2(V2_MOUNT, "/system.slice/job_7/step_0/task_0", files))
    assert limits.memory(MACHINE) == MemoryLimit(4_000_000_000, 2_500_000_000)
    assert limits.cpu() == CpuLimit(4.0, 9.0)
    assert limits.swap(MACHINE) is None
    assert limits.processors() is None


def test_machine_without_limits_has_none(tmp_path: Path) -> None:
    files = below("user.slice/", memory_2("max", 1, 0))
    limits = tree(tmp_path, version_2(V2_MOUNT, "/user.slice", files))
    assert (limits.memory(MACHINE), limits.swap(MACHINE), limits.cpu(), limits.processors()) == (None,) * 4


@pytest.mark.parametrize(
    ("mounted", "group"),
    [
        ("/", "/slurm/job_7"),
        ("/docker/0f3a", "/docker/0f3a"),  # a container without a namespace for groups
        ("/docker/0f3a", "/"),
    ],
)
def test_version_1(tmp_path: Path, mounted: str, group: str) -> None:
    lines = "".join(f"{i}:{name}:{group}\n" for i, name in enumerate(["cpu,cpuacct", "cpuset", "memory"], 2))
    memory = {
        "memory.limit_in_bytes": "8000000000\n",
        "memory.usage_in_bytes": "6000000000\n",
        "memory.memsw.limit_in_bytes": "9000000000\n",
        "memory.memsw.usage_in_bytes": "6500000000\n",
        "memory.stat": "cache 0\ninactive_file 5\nhierarchical_memory_limit 8000000000\n"
        "total_inactive_file 1000000000\n",
    }
    quota = {"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n", "cpuacct.usage": "2500000000\n"}
    at = group.lstrip("/") + "/" if mounted == "/" else ""
    files = {
        "proc/self/mountinfo": V1_MOUNTS.format(root=mounted),
        "proc/self/cgroup": f"{lines}1:name=systemd:/\n0::/\n",
        **below(f"sys/fs/cgroup/memory/{at}", memory),
        **below(f"sys/fs/cgroup/cpu,cpuacct/{at}", quota),
        f"sys/fs/cgroup/cpuset/{at}cpuset.effective_cpus": "1\n",
    }
    if at:  # above it nothing is limited
        files["sys/fs/cgroup/memory/memory.limit_in_bytes"] = UNLIMITED
        files["sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"] = "-1\n"
    limits = tree(tmp_path, files)
    assert limits.memory(MACHINE) == MemoryLimit(8_000_000_000, 5_000_000_000)
    assert limits.swap(MACHINE) == MemoryLimit(1_000_000_000, 500_000_000)
    assert limits.cpu() == CpuLimit(0.5, 2.5)
    assert limits.processors() == frozenset({1})


def test_system_without_groups_limits_nothing(tmp_path: Path) -> None:
    limits = CgroupLimits(tmp_path)
    assert (limits.memory(MACHINE), limits.swap(MACHINE), limits.cpu(), limits.processors()) == (None,) * 4


def test_limits_of_this_process_are_those_of_its_own_files() -> None:
    limits = CgroupLimits()
    total = limits.memory(2**63)
    assert total is None or 0 <= total.used <= total.total * 2
    assert limits.processors() is None or limits.processors()
