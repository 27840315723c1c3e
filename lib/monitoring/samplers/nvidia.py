"""NVIDIA GPUs, through the driver's own library and pynvml (the package nvidia-ml-py).

Never nvmlDeviceGetPcieThroughput, which measures for 20 ms a direction: bytes come from counters.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from monitoring.errors import MissingPackage, SamplerError
from monitoring.gpu.driver_calls import EVENTS, SAMPLING, NotedModule, driver_calls
from monitoring.gpu.sample import MIB, SLOT, DeviceInfo, GpuEvent, GpuSample, State
from monitoring.samplers import _nvml
from monitoring.samplers._nvml import BoundCall, Nvml
from monitoring.samplers._nvml_gpm import METRICS, Activity
from monitoring.samplers._nvml_processes import ComputeProcesses
from monitoring.samplers._nvml_reading import GONE, SUCCESS, Readings
from monitoring.samplers._selection import Identity, Visible, visible, visible_to_any
from monitoring.samplers._sysfs import node
from monitoring.samplers._xid import XidEvents

VARIABLES = ("CUDA_VISIBLE_DEVICES",)

# GpuSample._make, without its check of a length that a template has by itself.
made = partial(tuple.__new__, GpuSample)

# Seconds between looks at what changes seldom: MIG instances.
SLOW_EVERY = 5.0

# Seconds between looks at GPUs that could not be opened.
UNOPENED_EVERY = 1.0

# The places in a sample of what Readings do not read.
MIG, PROCESSES = SLOT["mig"], SLOT["processes"]
XIDS = SLOT["xid_errors"], SLOT["xid_last_error"]
ACTIVITY = [SLOT[name] for name in METRICS.values()]

# The values at XIDS of a GPU that reports none.
NO_XIDS = (None, None)

# Said of a GPU that is left out as a whole.
SPARED = "left out: calls of its driver did not return"

# What to do about a driver that does not begin, by NVML's error.
HINTS = {
    _nvml.NVML_ERROR_NO_PERMISSION: "give this user or container (--gpus all) the devices /dev/nvidia*",
    _nvml.NVML_ERROR_DRIVER_NOT_LOADED: "modprobe nvidia; dmesg says why the driver did not load",
    _nvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "install the driver's libnvidia-ml.so.1 (Debian: libnvidia-ml1), or add its folder to LD_LIBRARY_PATH"
    ),
    _nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was updated while it was in use: reboot",
}


def probe(root: Path = Path("/")) -> NvidiaSampler | None:
    """The NVIDIA GPUs of this machine; None if there is no driver.

    Another `root` replaces the machine's: its usr/lib/libnvidia-ml.so.1 is used, if it is the first that
    this process loads. Errors: MissingPackage without nvidia-ml-py, SamplerError for a driver that fails.
    """
    library = root / "usr/lib/libnvidia-ml.so.1"
    has_driver = (root / "proc/driver/nvidia").exists()
    if root == Path("/") and not has_driver and _is_absent("libnvidia-ml.so.1"):
        return None  # before pynvml is imported, which takes a fifth of what this process does here
    try:
        import pynvml
    except ImportError as error:
        if has_driver:
            raise MissingPackage("nvidia-ml-py is not installed", hint="pip install nvidia-ml-py") from error
        return None
    try:
        if root != Path("/"):
            if not library.exists():
                raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)  # pynvml then gets this one by its name
        _noted(pynvml).nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            if (why := _not_loaded(error)) is not None:
                hint = "reinstall it with the driver (Debian: libnvidia-ml1), or correct LD_LIBRARY_PATH"
                raise SamplerError(f"NVML: {why}", hint=hint) from error
            if not has_driver:
                return None
        raise SamplerError(f"NVML: {str(error).lower()}", hint=HINTS.get(error.value, "")) from error
    return NvidiaSampler(pynvml, root, os.environ)


def _is_absent(library: str) -> bool:
    """Whether there is no such library, rather than one that cannot be loaded."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return _says_absent(error)
    return False


def _says_absent(error: OSError) -> bool:
    return "libnvidia-ml.so.1" in str(error) and "No such file" in str(error)


def _not_loaded(error: Exception) -> str | None:
    """Return why the library is there and cannot be loaded, which pynvml reports as not found."""
    why = error.__context__
    return str(why) or None if isinstance(why, OSError) and not _says_absent(why) else None


def _noted(pynvml: Any, *, thread: int = SAMPLING) -> Any:
    """pynvml, with each call noted under its name, or refused if it is to be left out."""

    def refusal() -> Exception:
        error: Exception = pynvml.NVMLError(_nvml.NVML_ERROR_NOT_SUPPORTED)
        return error

    return NotedModule(pynvml, driver_calls(), prefix="nvml", refusal=refusal, thread=thread)


@dataclass
class _NvmlGpu:
    """A selected GPU. Without a handle it could not be had when we came."""

    device: DeviceInfo
    handle: Any
    mig_word: str
    """The word that selected one of its MIG instances; empty for the entire GPU."""
    refusal: int = SUCCESS
    """NVML's error for one that could not be had."""


class NvidiaSampler:
    """Samples the selected GPUs; those of a NVML that is initialized."""

    vendor = "nvidia"

    def __init__(self, module: Any, root: Path, environment: Mapping[str, str]) -> None:
        """`module` is pynvml."""
        self._pynvml = pynvml = _noted(module)
        self._calls = driver_calls()
        self._nvml = Nvml(module.nvmlLib, self._calls)
        self._root = root
        every = [self._handle(index) for index in range(pynvml.nvmlDeviceGetCount())]
        self.num_devices = len(every)
        identities = [self._identity(place, handle) for place, handle in enumerate(every)]
        self._unopened = [place for place, identity in enumerate(identities) if identity.uuid is None]
        self._unopened_at = time.monotonic() + UNOPENED_EVERY
        is_by_pci = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        kinds = {self._kind(place, handle) for place, handle in enumerate(every)} - {None}
        are_numbered = is_by_pci or len(kinds) < 2  # else CUDA puts the fastest first
        self._gpus = [
            self._gpu(one, every[one.place], one.number if are_numbered or one.word else None)
            for one in visible_to_any(environment, partial(visible, identities, VARIABLES))
        ]
        self._calls.about(None)
        self._slow_at = float("-inf")
        self._there = there = [gpu for gpu in self._gpus if gpu.handle is not None]
        handles = {gpu.device.index: gpu.handle for gpu in there}
        self._readings = Readings(self._nvml, self._calls, handles)
        self._activity = Activity(pynvml, self._nvml, self._calls, handles)
        self._processes = ComputeProcesses(pynvml, self._nvml, handles, self._calls)
        # the values that the readings do not give: what stays the same, MIG, processes, activity and Xids
        self._others = [value for gpu in there for value in gpu.device.sample()]
        self._xids: dict[int, tuple[int, int]] = {}
        self._events = XidEvents(
            pynvml,
            _noted(module, thread=EVENTS),
            {gpu.device.index: gpu.device for gpu in there},
            handles,
            self._calls,
        )
        self._open = True

    def devices(self) -> Sequence[DeviceInfo]:
        return [gpu.device for gpu in self._gpus]

    def sample(self) -> Sequence[GpuSample]:
        now = time.monotonic()
        # What is not asked for each sample, GPU by GPU in one flat list: a slice with a stride sets one value
        # of all GPUs.
        others, width = self._others, len(SLOT)
        if now - self._slow_at >= SLOW_EVERY:
            self._slow_at = now
            others[MIG::width] = [self._mig(gpu) for gpu in self._there]
            self._calls.about(None)
        if self._processes.is_due():
            others[PROCESSES::width] = self._processes.look()
        if self._xids != self._events.seen:
            self._xids = self._events.seen.copy()
            found = [self._xids.get(gpu.device.index, NO_XIDS) for gpu in self._there]
            for place, slot in enumerate(XIDS):
                others[slot::width] = [xids[place] for xids in found]
        readings, activity = self._readings, self._activity
        readings.ask()
        if activity.is_known:
            shares = activity.look(readings.failed)
            for place, slot in enumerate(ACTIVITY):
                others[slot::width] = shares[place :: len(ACTIVITY)]
        samples = [made(values) for values in readings.values(others)]
        return samples if len(samples) == len(self._gpus) else self._with_failed(samples)

    def driver_calls(self) -> list[BoundCall]:
        """All that a sample calls, for who measures what the driver has of its time."""
        return [*self._processes.driver_calls(), *self._readings.calls, *self._activity.calls]

    def events(self) -> Sequence[GpuEvent]:
        return [*self._events.take(), *self._opened_late()]

    def close(self) -> None:
        if self._open:
            self._open = False
            if self._events.close():
                self._activity.close()
                self._pynvml.nvmlShutdown()

    def _opened_late(self) -> list[GpuEvent]:
        """GPUs that could not be opened and answer by now; whether they are selected shows once they are."""
        now = time.monotonic()
        if not self._unopened or now < self._unopened_at:
            return []
        self._unopened_at = now + UNOPENED_EVERY
        found = []
        for place in self._unopened:
            uuid = self._identity(place, self._handle(place)).uuid
            if uuid is not None:
                found.append(
                    GpuEvent(time.time(), place, uuid, "back", None, f"GPU {place} ({uuid}) answers")
                )
        self._unopened = [place for place in self._unopened if place not in [event.index for event in found]]
        return found

    def _with_failed(self, samples: Sequence[GpuSample]) -> list[GpuSample]:
        """The samples, and those of GPUs that gave nothing, each in its place."""
        refused = {gpu.device.index: gpu.refusal for gpu in self._gpus if gpu.handle is None}
        failed = {**refused, **self._readings.failed}
        left = iter(samples)
        return [
            self._failed(gpu, failed[gpu.device.index]) if gpu.device.index in failed else next(left)
            for gpu in self._gpus
        ]

    def _failed(self, gpu: _NvmlGpu, answer: int) -> GpuSample:
        state: State = "lost" if answer in GONE else "error"
        is_spared = self._calls.leaves_out_gpu(gpu.device.index)
        error = SPARED if is_spared else str(self._pynvml.NVMLError(answer))
        sample = gpu.device.sample(state, error)
        # an Xid is mostly why
        count, last = self._events.seen.get(gpu.device.index, NO_XIDS)
        return sample._replace(xid_errors=count, xid_last_error=last)

    def _mig(self, gpu: _NvmlGpu) -> list[dict[str, object]] | None:
        """The instances that are selected, None of a GPU that is not partitioned."""
        self._calls.about(gpu.device.index)
        instances = _mig_handles(self._pynvml, gpu.handle)
        if instances is None:
            return None
        found = []
        for instance in instances:
            with contextlib.suppress(self._pynvml.NVMLError):  # one that was just taken down
                uuid = str(self._pynvml.nvmlDeviceGetUUID(instance))
                if uuid.startswith(gpu.mig_word):
                    found.append({"uuid": uuid, **self._mig_values(instance)})
        return found

    def _mig_values(self, instance: Any) -> dict[str, object]:
        pynvml = self._pynvml
        values: dict[str, object] = dict.fromkeys(
            ("name", "gpu_instance", "compute_instance", "memory_used_mb", "memory_total_mb")
        )
        with contextlib.suppress(pynvml.NVMLError):
            values["name"] = pynvml.nvmlDeviceGetName(instance)
            values["gpu_instance"] = pynvml.nvmlDeviceGetGpuInstanceId(instance)
            values["compute_instance"] = pynvml.nvmlDeviceGetComputeInstanceId(instance)
            memory = pynvml.nvmlDeviceGetMemoryInfo(instance)
            values["memory_used_mb"] = memory.used / MIB
            values["memory_total_mb"] = memory.total / MIB
        return values

    def _handle(self, index: int) -> Any:
        """None for a GPU that is lost, or not for this user."""
        self._calls.about(index)
        try:
            return self._pynvml.nvmlDeviceGetHandleByIndex(index)
        except self._pynvml.NVMLError:
            return None

    def _identity(self, place: int, handle: Any) -> Identity:
        pynvml = self._pynvml
        self._calls.about(place)
        if handle is None:
            return Identity(None)
        try:
            parts = [pynvml.nvmlDeviceGetUUID(part) for part in _mig_handles(pynvml, handle) or ()]
            return Identity(pynvml.nvmlDeviceGetUUID(handle), parts)
        except pynvml.NVMLError:
            return Identity(None)

    def _kind(self, place: int, handle: Any) -> str | None:
        self._calls.about(place)
        with contextlib.suppress(self._pynvml.NVMLError):
            return None if handle is None else str(self._pynvml.nvmlDeviceGetName(handle))
        return None

    def _gpu(self, one: Visible, handle: Any, number: int | None) -> _NvmlGpu:
        pynvml, index = self._pynvml, one.place
        self._calls.about(index)
        mig_word = one.word if one.word.startswith("MIG") else ""
        try:
            if handle is None:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)  # says why, or it has come back
            # NVML writes the PCI domain with 8 digits, sysfs with 4: 0000:65:00.0
            bus_id = str(pynvml.nvmlDeviceGetPciInfo_v3(handle).busId).lower()[-12:]
            device = DeviceInfo(
                index=index,
                uuid=pynvml.nvmlDeviceGetUUID(handle),
                name=pynvml.nvmlDeviceGetName(handle),
                vendor="nvidia",
                pci_bus_id=bus_id,
                numa_node=node(self._root / "sys/bus/pci/devices" / bus_id),
                visible_index=number,
            )
        except pynvml.NVMLError as error:
            device = DeviceInfo(index, None, None, "nvidia", visible_index=number)
            return _NvmlGpu(device, None, mig_word, refusal=error.value)
        return _NvmlGpu(device, handle, mig_word)


def _mig_handles(pynvml: Any, handle: Any) -> list[Any] | None:
    """The MIG instances of a GPU, None if it is not partitioned."""
    try:
        if pynvml.nvmlDeviceGetMigMode(handle)[0] != 1:
            return None
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:
        return None
    found = []
    for place in range(most):
        with contextlib.suppress(pynvml.NVMLError):  # a place without an instance
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
    return found
