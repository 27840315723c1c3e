"""The loop in which agents and monitors sample the GPUs of this machine."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from monitoring.errors import SamplerError
from monitoring.gpu.driver_calls import DriverCall
from monitoring.gpu.history import GpuHistory
from monitoring.gpu.masks import Mask
from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample
from monitoring.host import backoff
from monitoring.host.backoff import Backoff
from monitoring.sampler_process.process import LOOK_EVERY, Restart, Restarts, SamplerProcess

# Looks in a row without an answer of any GPU, after which the driver is opened again: what a process has
# opened stays invalid after a driver was reloaded or the GPUs were reset.
SILENT_LOOKS = 3

# Where no GPU is found another look for one takes a process of its own, and is this much more seldom.
SELDOM = 5

# Seconds that are waited for a driver when the sampling of chosen GPUs ends.
STOP_SECONDS = 2.0


class SampleSink(Protocol):
    """The receiver of samples, called by the thread of the loop. What it raises is a failure, too."""

    def found(self, devices: Sequence[DeviceInfo] | None, problems: Sequence[str]) -> None:
        """Note which GPUs a process is about to sample, None without any (yet); again on a change."""

    def take(self, samples: Sequence[GpuSample], events: Sequence[GpuEvent]) -> None:
        """Take one look, and the events since the last."""

    def failed(self, restart: Restart) -> None:
        """Note that sampling has failed; `restart` says why, and when it begins again."""


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
        simulated: int = 0,
        without_last: Callable[[], None] = lambda: None,
    ) -> None:
        """`ending` ends it, after one more sample with `last_sample`; where that cannot be had,
        `without_last` is called in its place, before `done` is set.

        `masks` are those of further processes; when they change, another process samples. `simulated` GPUs
        replace those of this machine.
        """
        self.done = threading.Event()
        """Set when no sample follows."""
        self._sink = sink
        self._interval = interval
        self._ending = ending
        self._last_sample = last_sample
        self._root = root
        self._masks = masks
        self._simulated = simulated
        self._without_last = without_last
        self._process: SamplerProcess | None = None
        self._had_gpus = False
        self._absences = Backoff(first=SELDOM * backoff.FIRST_DELAY)
        self._absence: Sequence[str] | None = None

    def run(self) -> None:
        """Sample until the end; never raises what a sampler or the sink raised."""
        restarts = Restarts()
        try:
            while not self.done.is_set():
                restarts.begin()
                was_ending = self._ending.is_set()
                try:
                    while self._follow(restarts.left_out):
                        pass
                    return
                except Exception as error:  # noqa: BLE001 - a sampler is called here; the sink gets it
                    if self.done.is_set():  # given up: the process was ended for that
                        return
                    restart = restarts.after(error)
                self._sink.failed(restart)
                if restart.delay is None:
                    return
                if self._ending.wait(restart.delay) and (was_ending or not self._last_sample):
                    return  # else the end came meanwhile, and one more process takes the last sample
        finally:
            try:
                if self._ending.is_set() and not self.done.is_set():
                    self._without_last()
            finally:
                self.done.set()

    def give_up(self) -> None:
        """Do without the driver that does not answer; any thread may call it."""
        self.done.set()
        if self._process is not None:
            self._process.kill()

    def _follow(self, left_out: Sequence[DriverCall]) -> bool:
        """Start the process that samples, and repeat until the end; raises what it raises.

        True if another is to continue, for the masks have changed, or a GPU that was not found may have come.
        """
        masks = self._masks()
        process = SamplerProcess(self._root, left_out=left_out, masks=masks, simulated=self._simulated)
        with contextlib.closing(process):
            self._process = process
            sampler, problems = process.open()
            if sampler is not None:
                self._sink.found(process.devices(), problems)
                self._had_gpus, self._absence = True, None
                return self._repeat(process, masks)
        if self._had_gpus:  # a driver that is being reloaded, most likely
            raise SamplerError("; ".join(problems) or "there is no GPU any more")
        if problems != self._absence:
            self._absence = problems
            self._sink.found(None, problems)
        return self._wait_for_gpus(masks, self._absences.failed() if process.may_come else float("inf"))

    def _wait_for_gpus(self, masks: Sequence[Mask], seconds: float) -> bool:
        """Whether to look again, after so many seconds or other masks; False at the end."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._masks() == masks:
            if self._ending.wait(min(left, LOOK_EVERY)):
                return False
        return not self._ending.is_set()

    def _repeat(self, process: SamplerProcess, masks: Sequence[Mask]) -> bool:
        """Sample until the end, or, which is True, until another process would find other GPUs.

        Samples that a slow driver missed are not made up for.
        """
        due, silent = time.monotonic(), 0
        while not (is_last := self._ending.is_set()) or self._last_sample:
            samples, events = process.sample(), process.events()
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


class ChosenGpus:
    """Some GPUs of this machine, or all, for a program that shows them: `take` gets what a thread samples."""

    def __init__(self, indices: Collection[int] | None, history_size: int) -> None:
        self.history = GpuHistory(history_size)
        self.problems: list[str] = []
        """Problems so far, each reported once."""
        self.ready = threading.Event()
        """Set when the first sample is there, or when there will be none."""
        self._wanted = None if indices is None else frozenset(indices)
        self._ending = threading.Event()

    def _begin(self, interval: float, **options: Any) -> None:
        """Begin to sample; `options` are those of a SamplingLoop."""
        self._ending.clear()
        self._loop = SamplingLoop(self, interval, self._ending, **options)
        self._sampling = threading.Thread(target=self._loop.run, name="gpus", daemon=True)
        self._sampling.start()

    def _end(self) -> None:
        """End that; after a short wait for a driver, also the process that it holds up."""
        self._ending.set()
        self._sampling.join(STOP_SECONDS)
        if self._sampling.is_alive():
            self._tell("the GPU driver does not answer; the process that asks it is killed")
            self._loop.give_up()
            self._sampling.join(STOP_SECONDS)

    def _chosen(self, samples: Sequence[GpuSample]) -> list[GpuSample]:
        return [sample for sample in samples if self._wanted is None or sample.index in self._wanted]

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _set_ready(self) -> None:
        self.ready.set()

    def take(self, samples: Sequence[GpuSample], events: Sequence[GpuEvent]) -> None:
        raise NotImplementedError

    def found(self, devices: Sequence[DeviceInfo] | None, problems: Sequence[str]) -> None:
        """Report the GPUs that are not sampled."""
        for problem in problems:
            self._tell(problem)
        if devices is None:
            self._tell("there is no GPU to sample")
            self._set_ready()
            return
        there = [device.index for device in devices]
        for index in sorted((self._wanted or frozenset()).difference(there)):
            self._tell(f"there is no GPU {index}; there is {', '.join(map(str, there))}")

    def failed(self, restart: Restart) -> None:
        """Tell why, unless it is about to end anyway."""
        if not self._ending.is_set():
            self._tell(restart.message)
            self._set_ready()
