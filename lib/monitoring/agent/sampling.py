"""The agent's look at the GPUs while a run goes on: a thread that asks a process of its own for each sample.

What goes wrong with a sampler is an alert, and it is tried again; a driver that hangs hangs this thread only,
and one that crashes ends that process only.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.agent.gpu_stats import GpuStats
from monitoring.gpu.options import gpu_monitor_options
from monitoring.gpu.sample import GpuEvent, GpuSample
from monitoring.journal.alerts import Alerts, Severity
from monitoring.journal.files import GPU_STATS, JOURNAL
from monitoring.sampling.process import Restarts, SamplerProcess

# Seconds without an answer after which a driver counts as hanging.
HANGING_AFTER = 10.0

# How far back from the journal's end its last step is looked for.
TAIL_BYTES = 8192

HANGS = "a GPU driver has not answered for 10 s; there are no samples until it does"


class GpuSampling:
    """Samples one attempt of a run until it is told to end; then `done` is set, and no sample follows.

    One thread calls `start`, `watch` and `end`, none of which waits.
    """

    def __init__(self, directory: Path, run: Mapping[str, Any], alerts: Alerts) -> None:
        """`run` is the run.json of a run that asks for samples."""
        self.done = threading.Event()
        self._directory = directory
        self._run = run
        options = gpu_monitor_options(run["gpu_monitor"])
        assert options is not None
        self._options = options
        self._alerts = alerts
        self._ending = threading.Event()
        self._asked_at = 0.0  # when `_look` asked a driver that has not answered yet; 0 if none is asked
        self._told_hanging = False
        self._failure = ""
        self._restarts = Restarts()
        self._process: SamplerProcess | None = None
        self._told: set[str] = set()

    def start(self) -> None:
        """Begin to sample."""
        threading.Thread(target=self._sample, name="gpu sampling", daemon=True).start()

    def end(self) -> None:
        """Ask for one more sample, the last."""
        self._ending.set()

    def watch(self) -> None:
        """Tell of a driver that hangs; once the end is asked for, do without its last sample."""
        asked_at = self._asked_at
        if self.done.is_set() or not asked_at or time.monotonic() - asked_at < HANGING_AFTER:
            return
        if not self._told_hanging:
            self._told_hanging = True
            self._alerts.add("gpu_monitor", "warning", HANGS)
        if self._ending.is_set():
            self.done.set()
            if self._process is not None:
                self._process.kill()

    def _sample(self) -> None:
        try:
            while not self.done.is_set():
                try:
                    self._follow()
                    return
                except Exception as error:  # noqa: BLE001 - a sampler is called here; it becomes an alert
                    delay = self._note_failure(error)
                if delay is None or self._ending.wait(delay):
                    return
        finally:
            self.done.set()

    def _follow(self) -> None:
        """Start the process that samples, and write until the end; raises what it raises."""
        self._restarts.begin()
        with contextlib.closing(SamplerProcess(left_out=self._restarts.left_out)) as process:
            self._process = process
            self._asked_at = time.monotonic()
            sampler, problems = process.open()
            self._asked_at = 0.0
            self._tell_problems(problems, found=sampler is not None)
            if sampler is not None:
                self._write(process)

    def _tell_problems(self, problems: Sequence[str], *, found: bool) -> None:
        if not found:
            why = f": {'; '.join(problems)}" if problems else ""
            self._tell_once("warning", f"GPU_MONITOR=y, but there is no GPU{why}; {GPU_STATS} is not written")
            return
        for problem in problems:
            self._tell_once("warning", f"some GPUs are not sampled: {problem}")

    def _write(self, process: SamplerProcess) -> None:
        attempt = self._run["attempts"][-1]
        stats = GpuStats(
            self._directory,
            self._options,
            run_id=self._run["run_id"],
            attempt=attempt["attempt"],
            started=attempt["started"],
            host=platform.node(),
        )
        with contextlib.closing(stats), contextlib.closing(_LastStep(self._directory / JOURNAL)) as step:
            self._repeat(process, stats, step, self._options.interval)

    def _repeat(self, sampler: SamplerProcess, stats: GpuStats, step: _LastStep, interval: float) -> None:
        """One sample each `interval` seconds; those that a slow driver missed are not made up for."""
        states = DeviceStates(stats.before)
        due = time.monotonic()
        while True:
            is_last = self._ending.is_set()
            self._asked_at = time.monotonic()
            samples, events = sampler.sample(), sampler.events()
            self._asked_at = 0.0
            if self.done.is_set():  # given up meanwhile: what follows the run has gone on without this one
                return
            stats.append(samples, time=time.time(), global_step=step.read())
            for event in [*states.changes(samples, time.time()), *merged(events)]:
                self._tell_event(event)
            self._note_success()
            if is_last:
                self.done.set()  # before anything is closed, which may wait for a driver
                return
            due = max(due + interval, time.monotonic())
            sampler.wait(self._ending, due - time.monotonic())

    def _tell_event(self, event: GpuEvent) -> None:
        self._alerts.add(
            f"gpu_{event.kind}",
            "info" if event.kind == "back" else "error",
            event.message,
            subject=event.uuid,
            value=event.code,
        )

    def _tell_once(self, severity: Severity, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._alerts.add("gpu_monitor", severity, message)

    def _note_failure(self, error: Exception) -> float | None:
        """Seconds until the next try, None if there is none."""
        self._asked_at = 0.0
        if self.done.is_set():  # given up: the process was ended for that
            return None
        restart = self._restarts.after(error)
        if restart.message != self._failure:
            self._alerts.add("gpu_monitor", restart.severity, restart.message, **restart.facts)
        self._failure = restart.message
        return restart.delay

    def _note_success(self) -> None:
        self._told_hanging = False
        if self._failure:
            self._alerts.add("gpu_monitor", "info", "GPUs are sampled again")
            self._failure = ""


def merged(events: Sequence[GpuEvent]) -> list[GpuEvent]:
    """Events of one look, those that are alike as one: a failing GPU can report hundreds a second."""
    alike = [(event.index, event.kind, event.code) for event in events]
    found = []
    for place, event in enumerate(events):
        if alike.index(alike[place]) == place:
            times = alike.count(alike[place])
            found.append(event if times == 1 else event._replace(message=f"{event.message} ({times} times)"))
    return found


class DeviceStates:
    """Tells when a GPU is lost, fails or is back, once each, also over several agents of a run."""

    def __init__(self, before: Mapping[str, Any] | None) -> None:
        """`before` is the run's last gpu record."""
        gpus = before["multi_gpu_data"] if before is not None else ()
        self._states: dict[int, str] = {gpu["index"]: gpu["state"] for gpu in gpus}

    def changes(self, samples: Sequence[GpuSample], now: float) -> list[GpuEvent]:
        """What differs from the last look; a GPU that is seen for the first time was well."""
        found = []
        for sample in samples:
            if self._states.get(sample.index, "ok") != sample.state:
                found.append(_change(sample, now))
            self._states[sample.index] = sample.state
        return found


def _change(sample: GpuSample, now: float) -> GpuEvent:
    name = f"GPU {sample.index} ({sample.uuid or sample.name or sample.vendor})"
    if sample.state == "ok":
        return GpuEvent(now, sample.index, sample.uuid, "back", None, f"{name} answers again")
    what = "is lost" if sample.state == "lost" else "cannot be read"
    return GpuEvent(now, sample.index, sample.uuid, sample.state, None, f"{name} {what}: {sample.error}")


class _LastStep:
    """The newest `global_step` of a journal, from its end alone."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = -1
        self._step = 0

    def read(self) -> int:
        """0 before the first step; of a torn last line the step counts as soon as it can be read."""
        size = os.fstat(self._fd).st_size
        if size != self._size:
            self._size = size
            tail = os.pread(self._fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
            steps = re.findall(rb'"global_step":(\d+)[,}]', tail)
            self._step = int(steps[-1]) if steps else self._step
        return self._step

    def close(self) -> None:
        os.close(self._fd)
