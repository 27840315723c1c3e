"""Who computes on NVIDIA GPUs, and how much; asked at each sample, for energy is shared by it."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Mapping
from typing import Any

from monitoring.gpu.driver_calls import DriverCalls
from monitoring.gpu.sample import MIB
from monitoring.samplers import _nvml
from monitoring.samplers._nvml import Nvml

# NVML_VALUE_NOT_AVAILABLE as bytes.
UNKNOWN_MEMORY = _nvml.NVML_VALUE_NOT_AVAILABLE % 2**64

# Room for so many processes of a GPU at first.
ROOM = 32

# Of the time so much goes into asking at most, but it is done once in LONGEST seconds in any case.
EFFORT = 0.01
LONGEST = 5.0

# Seconds for which a process has the utilization that the driver reported last: it reports one each 1/6 s to
# 1 s, and none of a process that was idle meanwhile.
FRESH = 2.0


class ComputeProcesses:
    """The processes on some GPUs."""

    def __init__(self, pynvml: Any, nvml: Nvml, handles: Mapping[int, Any], calls: DriverCalls) -> None:
        """`handles` are pynvml's, of the GPUs by their index."""
        self._pynvml = pynvml
        self._calls = calls
        self._handles = {index: _nvml.device(handle) for index, handle in handles.items()}
        self._ask = nvml.find("nvmlDeviceGetComputeRunningProcesses_v3")
        self._count = ctypes.c_uint()
        self._infos = (_nvml.nvmlProcessInfo_t * ROOM)()
        self._names: dict[int, str | None] = {}
        self._utilization = [ProcessUtilization(nvml, handle) for handle in self._handles.values()]
        self._due = float("-inf")

    def is_due(self) -> bool:
        """Whether the next sample is to ask again; a driver that takes long for it is asked less often."""
        return time.monotonic() >= self._due

    def look(self) -> list[list[dict[str, object]] | None]:
        """Of each handle pid, name, memory and SM use of its processes; None where that is not to be had."""
        began = time.monotonic()
        found, busy = [], []
        for of_gpu, (index, handle) in zip(self._utilization, self._handles.items(), strict=True):
            self._calls.about(index)
            found.append(self._of(handle))
            busy.append(of_gpu.look() if found[-1] else None)
        self._calls.about(None)
        pids = {pid for processes in found for pid, _ in processes or ()}
        self._names = {pid: self._names.get(pid) or self._name(pid) for pid in pids}
        now = time.monotonic()
        self._due = began + min(LONGEST, (now - began) / EFFORT)
        return [
            None
            if processes is None
            else [
                {
                    "pid": pid,
                    "name": self._names[pid],
                    "memory_mb": None if used is None else used / MIB,
                    "sm_percent": None if percent is None else percent.get(pid, 0.0),
                }
                for pid, used in processes
            ]
            for processes, percent in zip(found, busy, strict=True)
        ]

    def _of(self, handle: _nvml.nvmlDevice_t) -> list[tuple[int, int | None]] | None:
        """Pid and memory (bytes) of each."""
        if self._ask is None:
            return None
        while True:
            self._count.value = len(self._infos)
            answer = self._ask(handle, ctypes.byref(self._count), self._infos)
            if answer != _nvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._infos = (_nvml.nvmlProcessInfo_t * (2 * max(self._count.value, len(self._infos))))()
        if answer != _nvml.NVML_SUCCESS:
            return None
        return [
            (info.pid, None if info.usedGpuMemory == UNKNOWN_MEMORY else info.usedGpuMemory)
            for info in self._infos[: self._count.value]
        ]

    def _name(self, pid: int) -> str | None:
        with contextlib.suppress(self._pynvml.NVMLError):
            return str(self._pynvml.nvmlSystemGetProcessName(pid)).rpartition("/")[2]
        return None


class ProcessUtilization:
    """How busy each process keeps the SMs of one GPU."""

    def __init__(self, nvml: Nvml, handle: _nvml.nvmlDevice_t) -> None:
        self._ask = nvml.find("nvmlDeviceGetProcessUtilization")
        self._handle = handle
        self._samples = (_nvml.nvmlProcessUtilizationSample_t * ROOM)()
        self._count = ctypes.c_uint()
        self._seen = 0
        self._found: dict[int, tuple[float, float]] = {}

    def look(self) -> dict[int, float] | None:
        """Pid -> percent, without those that are idle; None where the driver does not report it."""
        if self._ask is None:
            return None
        answer = self._read(self._ask)
        if answer == _nvml.NVML_ERROR_INSUFFICIENT_SIZE:
            room = 2 * max(self._count.value, len(self._samples))
            self._samples = (_nvml.nvmlProcessUtilizationSample_t * room)()
            answer = self._read(self._ask)
        now = time.monotonic()
        if answer == _nvml.NVML_SUCCESS:
            self._take(now)
        elif answer != _nvml.NVML_ERROR_NOT_FOUND:  # which is: none since the last look
            return None
        self._found = {pid: found for pid, found in self._found.items() if now - found[1] < FRESH}
        return {pid: percent for pid, (percent, _) in self._found.items()}

    def _read(self, ask: Callable[..., int]) -> int:
        self._count.value = len(self._samples)
        return ask(self._handle, self._samples, ctypes.byref(self._count), self._seen)

    def _take(self, now: float) -> None:
        """The newest sample of each process; those from before the first look may be old."""
        samples = sorted(self._samples[: self._count.value], key=lambda sample: sample.timeStamp)
        self._seen = max(self._seen, samples[-1].timeStamp if samples else 0)
        for sample in samples:
            if sample.pid and sample.timeStamp > self._seen - FRESH * 1e6:
                self._found[sample.pid] = float(sample.smUtil), now
