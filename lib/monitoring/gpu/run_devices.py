"""Which of the sampled GPUs are a run's, and which share of each is: by processes, else by what it says.

Three sources, of which the first that says anything counts, as docs/gpu-monitoring.md has it: the run's
processes on the GPUs; the device that the training says it computes on; the GPUs that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from monitoring.gpu.sample import DeviceInfo, GpuSample

DevicesSource = Literal["processes", "device", "selection"]

# What frameworks call the GPUs of whom.
VENDORS = {"cuda": ("nvidia", "amd"), "hip": ("amd",), "xpu": ("intel",)}

# Devices that are no GPU.
NO_GPU = ("cpu", "meta")


class Shares(NamedTuple):
    """A look at the GPUs of a run."""

    of: Mapping[int, float]
    """GPU index -> the share of its time that is the run's, from 0 to 1; other GPUs do not stand here."""
    source: DevicesSource | None
    """None as long as it is not known which are the run's: then `of` has what would be, of each GPU."""


class RunEvidence(Protocol):
    """What is known of a run beside samples."""

    pids_are_ours: bool
    """Whether drivers number processes as this process does; not so in most containers."""

    def is_own(self, pid: int) -> bool:
        """Whether a process is one of the run's."""

    def said_devices(self) -> Sequence[str]:
        """What the run's ranks on this machine say that they compute on: `cpu`, `cuda:0`."""

    def has_begun(self) -> bool:
        """Whether the training has recorded anything, so that what it does not say will not come."""


def every_gpu(samples: Sequence[GpuSample]) -> Shares:
    """All GPUs, each undivided: for whoever watches a machine."""
    return Shares({sample.index: 1.0 for sample in samples}, "selection")


class RunDevices:
    """The GPUs of one attempt of a run, from one look to the next."""

    def __init__(self, devices: Sequence[DeviceInfo], evidence: RunEvidence) -> None:
        """`devices` are those that are sampled."""
        self._devices = devices
        self._evidence = evidence
        self._own: frozenset[int] = frozenset()
        self._source: DevicesSource | None = None

    def resume(self, record: Mapping[str, Any]) -> None:
        """Continue after the last gpu record of the same attempt: processes that it has seen count."""
        together = record["aggregate_stats"]
        if together.get("devices_source") == "processes":
            self._own, self._source = frozenset(together["devices"]), "processes"

    def look(self, samples: Sequence[GpuSample]) -> Shares:
        """The run's GPUs now.

        With its last process gone a GPU stays the run's until there is one on another GPU. One that does not
        answer is the run's if it was so before, or was given to it.
        """
        uses = [_Use.of(sample, self._evidence) for sample in samples]
        seen = frozenset(use.index for use in uses if use.own)
        if seen:
            own = self._own if self._source == "processes" else frozenset()
            unknown = frozenset(use.index for use in uses if not use.is_known)
            gone = frozenset(sample.index for sample in samples if sample.state != "ok")
            given = frozenset(device.index for device in self._devices if device.is_selected)
            self._own, self._source = seen | own & unknown | given & gone, "processes"
        elif self._source != "processes":
            self._decide(uses)
        return Shares(
            {use.index: use.share for use in uses if self._source is None or use.index in self._own},
            self._source,
        )

    def _decide(self, uses: Sequence[_Use]) -> None:
        """Without a process of the run on any GPU."""
        evidence = self._evidence
        if (said := self._said()) is not None:
            self._own, self._source = said, "device"
        elif evidence.has_begun():
            chosen = [device.index for device in self._devices if device.is_selected]
            given = chosen or [use.index for use in uses if not use.is_known]
            self._own, self._source = frozenset(given), "selection" if given else None

    def _said(self) -> frozenset[int] | None:
        """None where a rank says nothing, or what it says means no certain GPU."""
        places = [_places(text, self._devices) for text in self._evidence.said_devices()]
        if not places or None in places:
            return None
        return frozenset(place for found in places if found is not None for place in found)


class _Use(NamedTuple):
    """Who computes on one GPU."""

    index: int  # type: ignore[assignment]  # it hides tuple.index, which has no use here
    is_known: bool
    """Whether the run's processes would be seen."""
    own: int
    every: int

    @classmethod
    def of(cls, sample: GpuSample, evidence: RunEvidence) -> _Use:
        pids = {process["pid"] for process in sample.processes or ()}
        if not evidence.pids_are_ours or sample.processes is None:
            return cls(sample.index, False, 0, len(pids))
        own = sum(isinstance(pid, int) and evidence.is_own(pid) for pid in pids)
        return cls(sample.index, True, own, len(pids))

    @property
    def share(self) -> float:
        """Of the GPU's time; while nobody computes on it, it is kept for the run."""
        if not self.is_known or not self.every:
            return 1 / max(1, self.every)
        return self.own / self.every


def _places(text: str, devices: Sequence[DeviceInfo]) -> tuple[int, ...] | None:
    """Which GPU a text such as `cuda:1 (NVIDIA A10G, found)` means; None if that is not certain."""
    named = re.match(r"([a-z]+)(?::(\d+))?\b", text)
    if named is None or named[1] in NO_GPU:
        return () if named else None
    vendors = VENDORS.get(named[1], ())
    number = int(named[2] or 0)
    found = [
        device.index for device in devices if device.vendor in vendors and device.visible_index == number
    ]
    return tuple(found) if len(found) == 1 else None
