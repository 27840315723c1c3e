"""Who computes on NVIDIA GPUs: asked at each sample, for energy is shared among them by the second."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Sequence
from typing import Any

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


class ComputeProcesses:
    """The processes on some GPUs."""

    def __init__(self, pynvml: Any, nvml: Nvml, handles: Sequence[Any]) -> None:
        """`handles` are pynvml's, of the GPUs."""
        self._pynvml = pynvml
        self._handles = [_nvml.device(handle) for handle in handles]
        self._ask = nvml.find("nvmlDeviceGetComputeRunningProcesses_v3")
        self._count = ctypes.c_uint()
        self._infos = (_nvml.nvmlProcessInfo_t * ROOM)()
        self._names: dict[int, str | None] = {}
        self._due = float("-inf")

    def is_due(self) -> bool:
        """Whether the next sample is to ask again; a driver that takes long for it is asked less often."""
        return time.monotonic() >= self._due

    def look(self) -> list[list[dict[str, object]] | None]:
        """Of each handle pid, name and memory of its processes; None where that is not to be had."""
        began = time.monotonic()
        found = [self._of(handle) for handle in self._handles]
        pids = {pid for processes in found for pid, _ in processes or ()}
        self._names = {pid: self._names.get(pid) or self._name(pid) for pid in pids}
        now = time.monotonic()
        self._due = began + min(LONGEST, (now - began) / EFFORT)
        return [
            None
            if processes is None
            else [
                {"pid": pid, "name": self._names[pid], "memory_mb": None if used is None else used / MIB}
                for pid, used in processes
            ]
            for processes in found
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
