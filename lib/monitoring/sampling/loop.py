"""Sampling the GPUs of this machine for as long as somebody wants it: the loop of agents and monitors."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from monitoring.errors import SamplerError
from monitoring.gpu.masks import Mask
from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample
from monitoring.sampling.process import Restart, Restarts, SamplerProcess

# Looks in a row without an answer of any GPU, after which the driver is opened again: what a process has
# opened stays invalid after a driver was reloaded or the GPUs were reset.
SILENT_LOOKS = 3


class SampleSink(Protocol):
    """Who wants the samples; called by the thread that runs the loop. What it raises is a failure, too."""

    def found(self, devices: Sequence[DeviceInfo] | None, problems: Sequence[str]) -> None:
        """A process is about to sample these; None if there never was a GPU, which ends the loop."""

    def take(self, samples: Sequence[GpuSample], events: Sequence[GpuEvent]) -> None:
        """One look, and what happened since the last."""

    def failed(self, restart: Restart) -> None:
        """Sampling has failed; `restart` says why, and when it begins again."""


class SamplingLoop:
    """One sample each `interval` seconds by a process of its own, which is started again when it fails."""

    def __init__(
        self,
        sink: SampleSink,
        interval: float,
        ending: threading.Event,
        *,
        last_sample: bool = False,
        root: Path = Path("/"),
        masks: Callable[[], Sequence[Mask]] = tuple,
    ) -> None:
        """`ending` ends it, after one more sample with `last_sample`.

        `masks` are those of further processes; when they change, another process samples.
        """
        self.done = threading.Event()
        """Set when no sample follows."""
        self.asked_at = 0.0
        """Monotonic time of a sample that was requested and has not come yet; 0 without one."""
        self._sink = sink
        self._interval = interval
        self._ending = ending
        self._last_sample = last_sample
        self._root = root
        self._masks = masks
        self._process: SamplerProcess | None = None
        self._had_gpus = False

    def run(self) -> None:
        """Sample until the end; never raises what a sampler or the sink raised."""
        restarts = Restarts()
        try:
            while not self.done.is_set():
                restarts.begin()
                try:
                    while self._follow(restarts.left_out):
                        pass
                    return
                except Exception as error:  # noqa: BLE001 - a sampler is called here; the sink gets it
                    self.asked_at = 0.0
                    if self.done.is_set():  # given up: the process was ended for that
                        return
                    restart = restarts.after(error)
                self._sink.failed(restart)
                if restart.delay is None or self._ending.wait(restart.delay):
                    return
        finally:
            self.done.set()

    def give_up(self) -> None:
        """Do without the driver that does not answer; any thread may call it."""
        self.done.set()
        if self._process is not None:
            self._process.kill()

    def _follow(self, left_out: Sequence[str]) -> bool:
        """Start the process that samples, and repeat until the end; raises what it raises.

        True if another is to continue, for the masks have changed, or a GPU that could not be opened answers.
        """
        masks = self._masks()
        process = SamplerProcess(self._root, left_out=left_out, masks=masks)
        with contextlib.closing(process):
            self._process = process
            self.asked_at = time.monotonic()
            sampler, problems = process.open()
            self.asked_at = 0.0
            if sampler is None and self._had_gpus:  # a driver that is being reloaded, most likely
                raise SamplerError("; ".join(problems) or "there is no GPU any more")
            self._sink.found(None if sampler is None else process.devices(), problems)
            if sampler is not None:
                self._had_gpus = True
                return self._repeat(process, masks)
        return False

    def _repeat(self, process: SamplerProcess, masks: Sequence[Mask]) -> bool:
        """Sample until the end, or, which is True, until another process would find other GPUs.

        Samples that a slow driver missed are not made up for.
        """
        due, silent = time.monotonic(), 0
        while not (is_last := self._ending.is_set()) or self._last_sample:
            self.asked_at = time.monotonic()
            samples, events = process.sample(), process.events()
            self.asked_at = 0.0
            if self.done.is_set():  # given up by now: what follows has continued without this sample
                return False
            # that a GPU is back shows in its state once it is opened
            self._sink.take(samples, [event for event in events if event.kind != "back"])
            if is_last:
                self.done.set()  # before the process is closed, which may wait for a driver
                return False
            if any(event.kind == "back" for event in events):
                return True
            silent = 0 if any(sample.state == "ok" for sample in samples) else silent + 1
            if silent == SILENT_LOOKS:
                raise SamplerError(f"no GPU answers: {samples[0].error}")
            due = max(due + self._interval, time.monotonic())
            process.wait(self._ending, due - time.monotonic())
            if not self._ending.is_set() and self._masks() != masks:
                return True
        return False
