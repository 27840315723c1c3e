"""A process that samples when it is told to, and kernel folders of cards; everything here is simulated."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...warm_python import WarmPython

VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")

# Tells what probe_all found, then does what each line of stdin says. It looks for processes more often than
# the agent does, so that a test need not wait for that.
SAMPLE = """
import json, sys
from pathlib import Path
from monitoring.samplers import nvidia, probe_all

nvidia.SLOW_EVERY = 0.1
sampler, problems = probe_all(Path(sys.argv[1]))
devices = [device._asdict() for device in sampler.devices()] if sampler else None
print(json.dumps({"devices": devices, "problems": problems}), flush=True)
for line in sys.stdin:
    found = getattr(sampler, line.strip())()
    print(json.dumps([item._asdict() for item in found] if found is not None else None), flush=True)
"""

UUIDS = [f"GPU-{0x51A10000 + index:08x}-0000-4000-8000-{index:012x}" for index in range(8)]


class Sampling:
    """A process with a sampler of its own: NVML is loaded once a process."""

    def __init__(self, python: WarmPython, root: Path, environment: dict[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = python.start(["-c", SAMPLE, root], env={**clean, **environment}, **pipes)
        found = self._answer()
        self.devices: list[dict[str, Any]] | None = found["devices"]
        self.problems: list[str] = found["problems"]

    @property
    def indices(self) -> list[int]:
        assert self.devices is not None
        return [device["index"] for device in self.devices]

    @property
    def num_threads(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/task"))

    def sample(self) -> list[dict[str, Any]]:
        samples: list[dict[str, Any]] = self._ask("sample")
        return samples

    def events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self._ask("events")
        return events

    def end(self) -> int:
        """Close the sampler and the process; its exit code."""
        if self.devices is not None:
            self._ask("close")
        self._process.communicate(timeout=600)
        return self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def _ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@pytest.fixture
def sampling(simulated_nvml: SimulatedNvml, warm_nvml: WarmPython) -> Iterator[Callable[..., Sampling]]:
    """Starts processes that sample: sampling("gpus 2", root=Path("/"), CUDA_VISIBLE_DEVICES="1")."""
    started: list[Sampling] = []

    def start(*script: str, root: Path = Path("/"), **environment: str) -> Sampling:
        if script:
            simulated_nvml.write(*script)
        strict = {**simulated_nvml.environment(), "SIMULATED_NVML_STRICT": "1"}
        started.append(Sampling(warm_nvml, root, {**strict, **environment}))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def real_gpus(warm_nvml: WarmPython) -> Iterator[Sampling]:
    """A process that samples the GPUs of this machine."""
    process = Sampling(warm_nvml, Path("/"), {})
    yield process
    process.kill()


class Kernel:
    """A root directory with cards as the kernel's drivers lay them out; values are made up."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cards = 0

    def card(self, bus_id: str, **files: object) -> Path:
        """A card at a PCI address; file names have / as __. Returns the folder of its PCI device."""
        device = self.root / "sys/devices/pci0000:00" / bus_id
        folder = self.root / f"sys/class/drm/card{self._cards}"
        self._cards += 1
        device.mkdir(parents=True)
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(device)
        for name, value in files.items():
            self.write(device / name.replace("__", "/"), value)
        return device

    def write(self, path: Path, value: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def amd(self, bus_id: str = "0000:03:00.0", **files: object) -> Path:
        """An amdgpu card with every file that the sampler reads."""
        sensors = {
            "temp1_label": "edge",
            "temp1_input": 51000,
            "temp2_label": "junction",
            "temp2_input": 63000,
            "temp2_crit": 110000,
            "temp3_label": "mem",
            "temp3_input": 58000,
            "power1_input": 612000000,
            "power1_average": 600000000,
            "power1_cap": 750000000,
            "freq1_input": 2100000000,
            "freq2_input": 1300000000,
            "pwm1": 51,
        }
        given = {
            "vendor": "0x1002",
            "device": "0x74a1",
            "unique_id": "8c1d2e3f4a5b6c7d",
            "numa_node": 1,
            "gpu_busy_percent": 87,
            "mem_busy_percent": 40,
            "mem_info_vram_total": 192 * 2**30,
            "mem_info_vram_used": 48 * 2**30,
            "pcie_replay_count": 2,
            **{f"hwmon__hwmon3__{name}": value for name, value in sensors.items()},
        }
        return self.card(bus_id, **{**given, **files})

    def xe(self, bus_id: str = "0000:04:00.0", **files: object) -> Path:
        """An Intel card of the xe driver."""
        given = {
            "vendor": "0x8086",
            "device": "0xe20b",
            "numa_node": -1,
            "tile0__gt0__freq0__act_freq": 2350,
            "tile0__gt0__freq0__throttle__status": 1,
            "tile0__gt0__freq0__throttle__reason_pl1": 1,
            "tile0__gt0__freq0__throttle__reason_thermal": 0,
            "hwmon__hwmon4__energy1_label": "card",
            "hwmon__hwmon4__energy1_input": 987654321,
            "hwmon__hwmon4__temp2_label": "pkg",
            "hwmon__hwmon4__temp2_input": 57000,
            "hwmon__hwmon4__temp3_label": "vram",
            "hwmon__hwmon4__temp3_input": 60000,
            "hwmon__hwmon4__power1_max": 190000000,
        }
        return self.card(bus_id, **{**given, **files})

    def client(self, pid: int, bus_id: str, **values: object) -> None:
        """A process that has the card open, with what its fdinfo tells."""
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        if not (folder / "fd/7").is_symlink():
            (folder / "fd/7").symlink_to("/dev/dri/renderD128")
        lines = {"drm-driver": "xe", "drm-client-id": 12, "drm-pdev": bus_id, **values}
        content = "\n".join(f"{key.replace('_', '-')}:\t{value}" for key, value in lines.items())
        self.write(folder / "fdinfo/7", content)
        self.write(folder / "comm", "python3")

    def opened(self) -> list[Path]:
        """Which of its files this process holds open."""
        targets = [Path(os.path.realpath(fd)) for fd in Path("/proc/self/fd").iterdir()]
        return sorted(target for target in targets if target.is_relative_to(self.root))


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return Kernel(tmp_path / "root")
