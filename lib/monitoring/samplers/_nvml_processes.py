"""Who computes on NVIDIA GPUs, and how much; asked at each sample, for energy is shared by it."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from monitoring.gpu.driver_calls import GPU, SAMPLING, DriverCalls
from monitoring.gpu.sample import MIB
from monitoring.samplers import _nvml
from monitoring.samplers._nvml import ABSENT, BoundCall, Nvml

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


# The structures as bytes: pid and memory of a process; pid, time (us) and SM utilization of a sample.
INFO = struct.Struct("<I4xQ8x")
INFO_SIZE = ctypes.sizeof(_nvml.nvmlProcessInfo_t)
USE = struct.Struct("<I4xQI12x")


NONE_BUSY: dict[int, float] = {}


class ComputeProcesses:
    """The processes on some GPUs."""

    def __init__(self, pynvml: Any, nvml: Nvml, handles: Mapping[int, Any], calls: DriverCalls) -> None:
        """`handles` are pynvml's, of the GPUs by their index."""
        self._pynvml = pynvml
        self._calls = calls
        self._each = []
        for index, handle in handles.items():
            calls.about(index)
            self._each.append((index + 1, _OfGpu(nvml, _nvml.device(handle), self._name_of)))
        calls.about(None)
        self._due = float("-inf")

    def is_due(self) -> bool:
        """Whether the next sample is to ask again; a driver that takes long for it is asked less often."""
        return time.monotonic() >= self._due

    def look(self) -> list[list[dict[str, object]] | None]:
        """Return pid, name, memory and SM use of the processes of each handle; None for one that has none."""
        began = time.monotonic()
        words = self._calls.words
        # which GPU the driver is asked about is noted by the loop's own assignment; 0 is none
        found = [of_gpu.look(began) for words[GPU], of_gpu in self._each]
        words[GPU] = 0
        self._due = began + min(LONGEST, (time.monotonic() - began) / EFFORT)
        return found

    def driver_calls(self) -> list[BoundCall]:
        """Those of a look."""
        return [call for _, of_gpu in self._each for call in of_gpu.calls]

    def _name_of(self, pid: int) -> str | None:
        with contextlib.suppress(self._pynvml.NVMLError):
            return str(self._pynvml.nvmlSystemGetProcessName(pid)).rpartition("/")[2]
        return None


class _OfGpu:
    """The processes on one GPU; what is as it was is not made again."""

    def __init__(self, nvml: Nvml, handle: _nvml.nvmlDevice_t, name_of: Callable[[int], str | None]) -> None:
        self._nvml, self._handle, self._name_of = nvml, handle, name_of
        self._words = nvml.words
        self._count = ctypes.c_uint()
        self._make_room(ROOM)
        self._utilization = ProcessUtilization(nvml, handle)
        self._told = b""
        self._busy: dict[int, float] | None = NONE_BUSY
        self._names: dict[int, str | None] = {}
        self._processes: list[dict[str, object]] = []

    @property
    def calls(self) -> list[BoundCall]:
        """Those of a look."""
        return [call for call in (self._ask, self._utilization.call) if call is not ABSENT]

    def look(self, now: float) -> list[dict[str, object]] | None:
        """`now` is that of a clock that nobody sets."""
        count = self._count
        while True:
            count.value = self._room
            self._words[SAMPLING], function, arguments = self._ask
            answer = function(*arguments)
            if not answer:
                break
            if answer != _nvml.NVML_ERROR_INSUFFICIENT_SIZE:
                return None
            self._make_room(2 * max(count.value, self._room))
        told = self._infos[: count.value * INFO_SIZE]
        busy = self._utilization.look(now) if told else NONE_BUSY
        if told != self._told or busy != self._busy:
            self._told, self._busy = told, busy
            self._processes = self._made(list(INFO.iter_unpack(told)), busy)
        return self._processes

    def _made(self, found: list[tuple[int, int]], busy: dict[int, float] | None) -> list[dict[str, object]]:
        self._names = {pid: self._names.get(pid) or self._name_of(pid) for pid, _ in found}
        return [
            {
                "pid": pid,
                "name": self._names[pid],
                "memory_mb": None if used == UNKNOWN_MEMORY else used / MIB,
                "sm_percent": None if busy is None else busy.get(pid, 0.0),
            }
            for pid, used in found
        ]

    def _make_room(self, room: int) -> None:
        self._room = room
        self._infos: Any = ctypes.create_string_buffer(room * INFO_SIZE)  # a slice of which is bytes
        infos = (_nvml.nvmlProcessInfo_t * room).from_buffer(self._infos)
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        self._ask = self._nvml.bound(name, self._handle, ctypes.byref(self._count), infos) or ABSENT


class ProcessUtilization:
    """How busy each process keeps the SMs of one GPU."""

    def __init__(self, nvml: Nvml, handle: _nvml.nvmlDevice_t) -> None:
        self._nvml, self._handle = nvml, handle
        self._words = nvml.words
        self._count = ctypes.c_uint()
        self._seen = ctypes.c_ulonglong()
        self._make_room(ROOM)
        self._found: dict[int, tuple[float, float]] = {}
        self._fresh_until = float("inf")
        self._busy: dict[int, float] = {}

    def look(self, now: float) -> dict[int, float] | None:
        """Pid -> percent, without those that are idle; None where the driver does not report it."""
        answer = self._ask()
        if answer == _nvml.NVML_ERROR_INSUFFICIENT_SIZE:
            self._make_room(2 * max(self._count.value, self._room))
            answer = self._ask()
        if answer == _nvml.NVML_SUCCESS:
            self._take(now)
        elif answer != _nvml.NVML_ERROR_NOT_FOUND:  # which is: none since the last look
            return None
        if now >= self._fresh_until:
            self._found = {pid: found for pid, found in self._found.items() if now - found[1] < FRESH}
            self._keep()
        return self._busy

    def _ask(self) -> int:
        self._count.value = self._room
        self._words[SAMPLING], function, arguments = self.call
        return function(*arguments)

    def _make_room(self, room: int) -> None:
        self._room = room
        samples = (_nvml.nvmlProcessUtilizationSample_t * room)()
        self._bytes = memoryview(samples).cast("B")
        name = "nvmlDeviceGetProcessUtilization"
        call = self._nvml.bound(name, self._handle, samples, ctypes.byref(self._count), self._seen)
        self.call = call or ABSENT

    def _take(self, now: float) -> None:
        """The newest sample of each process; those from before the first look may be old."""
        samples = list(USE.iter_unpack(self._bytes[: self._count.value * USE.size]))
        # the driver gives them in no order of time: the newest of a process has the last word
        samples.sort(key=lambda sample: sample[1])
        newest = self._seen.value = max(self._seen.value, samples[-1][1] if samples else 0)
        for pid, at, percent in samples:
            if pid and at > newest - FRESH * 1e6:
                self._found[pid] = float(percent), now
        self._keep()

    def _keep(self) -> None:
        self._busy = {pid: percent for pid, (percent, _) in self._found.items()}
        self._fresh_until = min((at for _, at in self._found.values()), default=float("inf")) + FRESH
