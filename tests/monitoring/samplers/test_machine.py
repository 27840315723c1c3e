"""A machine's samples: in folders as a kernel writes them, and of this machine beside psutil."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from monitoring.host.other_work import MachineWork
from monitoring.samplers.machine import GB, MachineSample, MachineSampler

MEMINFO = (
    "MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {free} kB\nSwapTotal: 2000 kB\nSwapFree: 500 kB\n"
)

NETWORK = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls
    lo: 1000 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0
  eth0: 70 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0
  eth1: 7 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0
"""

DISKS = """   8       0 sda 10 0 200 1 20 0 400 1 0 1 1 0 0 0 0 0 0
   8       1 sda1 10 0 200 1 20 0 400 1 0 1 1 0 0 0 0 0 0
 253       0 dm-0 10 0 200 1 20 0 400 1 0 1 1 0 0 0 0 0 0
"""


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def processors(*busy: int, idle: int = 0) -> str:
    """/proc/stat after so many ticks of work on each processor."""
    lines = [f"cpu{number} {ticks} 0 0 {idle} 0 0 0 0 0 0" for number, ticks in enumerate(busy)]
    return "\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "intr 1", ""])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root directory of a machine of four processors, 8 MB of memory and two sensors."""
    write(
        tmp_path,
        {
            "proc/stat": processors(0, 0, 0, 0),
            "proc/meminfo": MEMINFO.format(total=8000, free=2000),
            "proc/net/dev": NETWORK,
            "proc/diskstats": DISKS,
            "proc/sys/fs/file-nr": "1024\t0\t9000\n",
            "sys/block/sda/device/model": "disk\n",
            "sys/block/dm-0/size": "1\n",
            "sys/class/hwmon/hwmon0/name": "k10temp\n",
            "sys/class/hwmon/hwmon0/temp1_input": "61250\n",
            "sys/class/hwmon/hwmon0/temp1_label": "Tctl\n",
            "sys/class/hwmon/hwmon1/name": "nvme\n",
            "sys/class/hwmon/hwmon1/temp1_input": "70000\n",
        },
    )
    return tmp_path


def test_sample_of_a_machine(root: Path) -> None:
    sampler = MachineSampler(root, root=root)
    first = sampler.sample()
    write(root, {"proc/stat": processors(100, 50, 0, 0, idle=100)})
    found = sampler.sample()
    disk = shutil.disk_usage(root)
    assert first.cpu_usage_percent is None
    assert found.cpu_usage_percent == pytest.approx(100 * 150 / 550)
    changing = {"cpu_usage_percent", "load_average_1m", "disk_free_gb"}
    changing |= {"disk_usage_percent"}
    assert {name: value for name, value in found._asdict().items() if name not in changing} == {
        **dict.fromkeys(name for name in MachineSample._fields if name.startswith("trainer_")),
        "cpu_count": 4,
        "memory_usage_percent": 75.0,
        "memory_used_gb": pytest.approx(6000 * 1024 / GB),
        "memory_total_gb": pytest.approx(8000 * 1024 / GB),
        "swap_usage_percent": 75.0,
        "swap_used_gb": pytest.approx(1500 * 1024 / GB),
        "swap_total_gb": pytest.approx(2000 * 1024 / GB),
        "disk_total_gb": pytest.approx(disk.total / GB),
        "disk_read_bytes": 200 * 512,
        "disk_written_bytes": 400 * 512,
        "network_sent_bytes": 33,
        "network_received_bytes": 77,
        "cpu_temperature_celsius": 61.25,
        "temperatures": {"k10temp/Tctl": 61.25, "nvme/temp1": 70.0},
        "open_files": 1024,
        "open_files_limit": 9000,
        "cgroup_limits": [],
    }


def test_limits_of_a_container_count(root: Path) -> None:
    """Two processors, of which it may use one and a half, and half of the memory."""
    write(
        root,
        {
            "proc/self/mountinfo": "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpuset.cpus.effective": "2-3\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/memory.max": f"{4000 * 1024}\n",
            "sys/fs/cgroup/memory.current": f"{3500 * 1024}\n",
            "sys/fs/cgroup/memory.stat": f"inactive_file {500 * 1024}\n",
        },
    )
    sampler = MachineSampler(root, root=root)
    sampler.sample()
    write(root, {"proc/stat": processors(100, 100, 50, 25)})
    found = sampler.sample()
    assert (found.cpu_count, found.cpu_usage_percent) == (2, 100.0)  # no tick of either was idle
    assert (found.memory_usage_percent, found.memory_total_gb) == (75.0, 4000 * 1024 / GB)
    assert found.cgroup_limits == ["cpu", "memory"]
    write(
        root,
        {"sys/fs/cgroup/cpu.max": "150000 100000\n", "sys/fs/cgroup/cpu.stat": "usage_usec 5000000\n"},
    )
    assert MachineSampler(root, root=root).sample().cpu_count == 1.5


def test_machine_that_says_nothing_has_nothing(tmp_path: Path) -> None:
    found = MachineSampler(tmp_path / "gone", root=tmp_path).sample()
    known = {name for name, value in found._asdict().items() if value is not None}
    assert known == {"load_average_1m", "cgroup_limits"}


def test_sample_of_this_machine_is_what_others_read() -> None:
    found = MachineSampler(Path.cwd()).sample()
    disk, memory = psutil.disk_usage("."), psutil.virtual_memory()
    network = psutil.net_io_counters(pernic=True)
    assert found.disk_total_gb == pytest.approx(disk.total / GB)
    assert found.disk_free_gb == pytest.approx(disk.free / GB, abs=5)  # others write meanwhile
    sent = sum(it.bytes_sent for name, it in network.items() if name != "lo")
    assert found.network_sent_bytes == pytest.approx(sent, abs=1e9)
    assert found.cgroup_limits is not None
    if "memory" not in found.cgroup_limits:
        assert found.memory_total_gb == memory.total / GB
        assert found.memory_used_gb == pytest.approx((memory.total - memory.available) / GB, abs=4)
    if "cpu" not in found.cgroup_limits:
        assert found.cpu_count == psutil.cpu_count()
    assert (found.swap_total_gb or 0.0) == psutil.swap_memory().total / GB


def test_processes_of_a_training_are_counted_together(tmp_path: Path) -> None:
    """This process and a child of it with a file open, beside psutil; what is left out is not."""
    (tmp_path / "file").touch()
    with (tmp_path / "file").open() as file:
        command = ["sh", "-c", "echo; read wait"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[file.fileno()]
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            sampler = MachineSampler(tmp_path, trainer=MachineWork(child.pid))
            found = sampler.sample()
            other = psutil.Process(child.pid)
            assert (found.trainer_processes, found.trainer_open_files) == (1, other.num_fds())
            assert found.trainer_memory_gb == pytest.approx(other.memory_info().rss / GB, abs=0.002)
            left_out = MachineWork(os.getpid(), left_out=[child.pid])
            left_out.read()
            assert child.pid not in left_out.pids
            assert os.getpid() in left_out.pids
            child.communicate(b"\n")
    sampler = MachineSampler(tmp_path, trainer=MachineWork(child.pid))
    assert sampler.sample().trainer_processes is None
