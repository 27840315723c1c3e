"""Which sampled GPUs are a run's, and which share of each: by its processes, else by what it reports.

Two kinds of evidence, of which the first that there is counts, as docs/gpu-monitoring.md has it: the run's
processes on the GPUs; the device that the training says it computes on. Without either no GPU is the run's,
however many it was given, and whatever becomes of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple, Protocol

from monitoring.gpu.masks import Mask
from monitoring.gpu.sample import DeviceInfo, GpuSample

DevicesSource = Literal["processes", "device", "selection"]

# Device type of a framework -> the vendors of such GPUs.
VENDORS = {"cuda": ("nvidia", "amd"), "hip": ("amd",), "xpu": ("intel",)}

# Devices that are no GPU.
NO_GPU = ("cpu", "meta")


class Shares(NamedTuple):
    """The run's GPUs at one look."""

    of: Mapping[int, float]
    """GPU index -> the share of its time that is the run's, from 0 to 1; other GPUs do not stand here."""
    source: DevicesSource | None
    """How the run's GPUs are known; None while they are not: then `of` has the share of each if it is."""


class Said(NamedTuple):
    """The device that a rank says it computes on."""

    device: str
    """`cpu`, `cuda:0`, `cuda:1 (NVIDIA A10G, found)`."""
    mask: Mask | None = None
    """The mask by which it counts its GPUs, where that is another than this process's."""


class RunEvidence(Protocol):
    """Knowledge of a run besides samples."""

    pids_are_ours: bool
    """Whether drivers number processes as this process does; not so in most containers."""

    def is_own(self, pid: int) -> bool:
        """Whether a process is one of the run's."""

    def said_devices(self) -> Sequence[Said]:
        """Return the devices that the run's ranks on this machine say they compute on."""


def every_gpu(samples: Sequence[GpuSample]) -> Shares:
    """Return all GPUs, each undivided, as for a monitor of the machine."""
    return Shares({sample.index: 1.0 for sample in samples}, "selection")


class RunDevices:
    """The GPUs of one attempt of a run, from one look to the next."""

    def __init__(self, devices: Sequence[DeviceInfo], evidence: RunEvidence) -> None:
        """`devices` are those that are sampled."""
        self._devices = devices
        self._evidence = evidence
        self._own: frozenset[int] = frozenset()
        self._source: DevicesSource | None = None
        self._last: dict[int, float] = {}  # the share of each when it last answered

    def resume(self, record: Mapping[str, Any]) -> None:
        """Continue after the last gpu record of the same attempt: processes that it has seen count."""
        together = record["aggregate_stats"]
        if together.get("devices_source") == "processes":
            self._own, self._source = frozenset(together["devices"]), "processes"
            shares = {gpu["index"]: gpu["run_share"] for gpu in record["multi_gpu_data"]}
            self._last = {index: share for index, share in shares.items() if share is not None}

    def look(self, samples: Sequence[GpuSample]) -> Shares:
        """Return the run's GPUs now.

        With its last process gone a GPU stays the run's until there is one on another GPU. One that does not
        answer is the run's if it was so before, with the share that it had, or if the training names it.
        """
        uses = [_Use.of(sample, self._evidence) for sample in samples]
        seen = frozenset(use.index for use in uses if use.has_own)
        if seen:
            # a GPU on which processes were seen before stays while its processes cannot be seen
            own = self._own if self._source == "processes" else frozenset()
            unknown = frozenset(use.index for use in uses if not use.is_known)
            failed = frozenset(sample.index for sample in samples if sample.state != "ok")
            named = self._said() if failed else None
            self._own, self._source = seen | own & unknown | (named or frozenset()) & failed, "processes"
        elif self._source != "processes" and (said := self._said()) is not None:
            self._own, self._source = said, "device"
        for sample, use in zip(samples, uses, strict=True):
            if sample.state == "ok" or use.index not in self._last:
                self._last[use.index] = use.share
        counted = self._last if self._source is None else self._own
        return Shares(
            {use.index: self._last[use.index] for use in uses if use.index in counted}, self._source
        )

    def _said(self) -> frozenset[int] | None:
        """Return the GPUs that ranks name; None if a rank names none, or none for certain."""
        places = [_places(said, self._devices) for said in self._evidence.said_devices()]
        if not places or None in places:
            return None
        return frozenset(place for found in places if found is not None for place in found)


class _Use(NamedTuple):
    """The processes that compute on one GPU, seen from the run."""

    index: int  # type: ignore[assignment]  # it hides tuple.index, which has no use here
    is_known: bool
    """Whether the run's processes would be seen."""
    has_own: bool
    share: float
    """The run's share of the GPU's time; while no process computes on it, it is kept for the run."""

    @classmethod
    def of(cls, sample: GpuSample, evidence: RunEvidence) -> _Use:
        processes = sample.processes or ()
        pids = {process["pid"] for process in processes}
        if not evidence.pids_are_ours or sample.processes is None:
            return cls(sample.index, False, False, 1 / max(1, len(pids)))
        own = {pid for pid in pids if isinstance(pid, int) and evidence.is_own(pid)}
        return cls(sample.index, True, bool(own), _share(processes, own, len(pids)))


def _share(processes: Sequence[Mapping[str, Any]], own: Set[object], every: int) -> float:
    """Return the share of the processes `own`: by their work where that is known of all, else by number."""
    work = [process.get("sm_percent") for process in processes]
    known = [percent for percent in work if isinstance(percent, int | float)]
    total = sum(known)
    if len(known) == len(work) and total > 0:
        mine = [percent for process, percent in zip(processes, known, strict=True) if process["pid"] in own]
        return sum(mine) / total
    return len(own) / every if every else 1.0


def _places(said: Said, devices: Sequence[DeviceInfo]) -> tuple[int, ...] | None:
    """Return the GPU that is meant, empty for the CPU; None if that is not certain."""
    named = re.match(r"([a-z]+)(?::(\d+))?\b", said.device)
    if named is None or named[1] in NO_GPU:
        return () if named else None
    vendors = VENDORS.get(named[1], ())
    number = int(named[2] or 0)
    of_vendor = [device for device in devices if device.vendor in vendors]
    if said.mask is None:
        found = [device.index for device in of_vendor if device.visible_index == number]
    else:
        found = _by_mask(said.mask, number, of_vendor)
    return tuple(found) if len(found) == 1 else None


def _by_mask(mask: Mask, number: int, devices: Sequence[DeviceInfo]) -> list[int]:
    """The GPU that has a number in another process's `CUDA_VISIBLE_DEVICES`; other masks may be nested."""
    if set(mask) != {"CUDA_VISIBLE_DEVICES"} or any(device.vendor != "nvidia" for device in devices):
        return []
    word = "".join(mask["CUDA_VISIBLE_DEVICES"].split(",")[number : number + 1]).strip()
    if word.isdecimal():  # CUDA and NVML count alike where all are of one kind
        is_certain = len({device.name for device in devices}) == 1
        return [device.index for device in devices if is_certain and device.index == int(word)]
    return [device.index for device in devices if word and (device.uuid or "").startswith(word)]
