"""Which cores there are: physical ones, within affinity and quota."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kharness.matrix.machine.cores import usable_cores
from monitoring.host.cgroup import CgroupLimits

HERE = sorted(os.sched_getaffinity(0))


def test_every_processor_is_a_core_where_nothing_is_said(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == [(processor,) for processor in HERE]


def test_threads_of_one_core_go_together(tmp_path: Path) -> None:
    for processor in HERE:
        folder = tmp_path / f"sys/devices/system/cpu/cpu{processor}/topology"
        folder.mkdir(parents=True)
        # 4096: a sibling outside our affinity is not ours to use
        (folder / "thread_siblings_list").write_text(f"{HERE[0]}-{HERE[-1]},4096\n")
    assert usable_cores(tmp_path) == [tuple(HERE)]


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/a/b", {"sys/fs/cgroup/a/b/cpu.max": "150000 100000"}, 1.5),
        (
            "0::/a/b",
            {"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "50000 100000"},
            0.5,
        ),
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (
            "4:cpu,cpuacct:/c\n3:memory:/",
            {
                "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000",
            },
            4.0,
        ),
        (
            "4:cpu:/c",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            None,
        ),
    ],
)
def test_a_quota_of_the_cgroup(
    tmp_path: Path, groups: str, files: dict[str, str], quota: float | None
) -> None:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert CgroupLimits(tmp_path).cores() == quota
    assert len(usable_cores(tmp_path)) == (1 if quota and quota < 2 else len(HERE))


def test_no_cgroup_is_no_quota(tmp_path: Path) -> None:
    assert CgroupLimits(tmp_path).cores() is None
