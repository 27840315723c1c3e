"""Samples a run's GPUs for its agent: a thread that requests each sample from another process.

What goes wrong with a sampler is an alert, and it is tried again; a driver that crashes ends that process
only, and so does one that hangs, after some seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.agent.sample_threads.gpu_stats import THINNING, GpuStats
from monitoring.agent.sample_threads.journal_sampling import JournalSampling
from monitoring.agent.sample_threads.last_step import LastStep
from monitoring.agent.sample_threads.run_processes import RunProcesses
from monitoring.errors import MonitoringError
from monitoring.gpu.device_states import WORDS, DeviceStates, gpu_name
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.run_devices import RunDevices
from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample
from monitoring.host.name import host_name
from monitoring.host.steady_clock import SteadyClock
from monitoring.journal.alerts import Alerts, Severity
from monitoring.journal.files import GPU_STATS, OF_RANK_0, HostFiles
from monitoring.sampler_process.loop import SamplingLoop
from monitoring.sampler_process.process import Restart


class GpuSampling(JournalSampling):
    """Samples the GPUs of one attempt of a run; one thread calls `start`, `watch` and `end`."""

    journal, thinning = GPU_STATS, THINNING
    _options: GpuMonitorOptions

    def __init__(
        self, directory: Path, run: Mapping[str, Any], alerts: Alerts, own: HostFiles = OF_RANK_0
    ) -> None:
        """`run` is the run.json of a run that asks for samples, `own` are the files of this host."""
        super().__init__(directory, run, alerts, own, GpuMonitorOptions.asked(run["gpu_monitor"]))
        # of all ranks, which say in their start records which GPUs they may use
        self._ranks = RunProcesses(directory, run["attempts"][-1])
        self._loop = SamplingLoop(
            self,
            self._options.interval,
            self._ending,
            last_sample=True,
            masks=self._ranks.masks,
            without_last=self._end_without_sample,
        )
        self.done = self._loop.done
        self._standing: set[int] = set()
        self._last_failure = ""
        self._devices: Sequence[DeviceInfo] = ()
        self._was_absent = False
        self._stats: GpuStats | None = None
        self._step: LastStep | None = None
        self._clock = SteadyClock()
        self._states = DeviceStates(None)

    def found(self, devices: Sequence[DeviceInfo] | None, problems: Sequence[str]) -> None:
        """Begin, or continue, the run's gpu_stats.jsonl if there are GPUs."""
        if devices is None:
            why = f": {'; '.join(problems)}" if problems else ""
            what = f"GPU_MONITOR=y, but there is no GPU{why}; {self._own.name(GPU_STATS)} is not written"
            self._alerts.fire("gpu_monitor", "warning", what)
            self._was_absent = True
            return
        for problem in problems:
            self._tell_once("warning", f"some GPUs are not sampled: {problem}")
        self._open(devices)

    def _open(self, devices: Sequence[DeviceInfo]) -> None:
        """Begin, or continue, gpu_stats.jsonl with records of these devices."""
        self._close()  # of a process that has sampled fewer GPUs
        self._devices = devices
        attempt = self._run["attempts"][-1]
        self._clock = SteadyClock()  # from here on, as that continues after the times of records
        self._stats = GpuStats(
            self._directory,
            self._options,
            run_id=self._run["run_id"],
            attempt=attempt["attempt"],
            started=attempt["started"],
            host=host_name(),
            devices=RunDevices(devices, self._ranks),
            own=self._own,
        )
        self._states = DeviceStates(self._stats.before)
        if self._stats.before is not None:
            self._standing = {
                gpu["index"]
                for gpu in self._stats.before["multi_gpu_data"]
                if gpu["energy_source"] == "integrated" and gpu["energy_counter_joules"] is not None
            }
        self._step = LastStep(self._directory / self._own.journal)

    def take(self, samples: Sequence[GpuSample], events: Sequence[GpuEvent]) -> None:
        """Write a record, and alerts of what happened."""
        assert self._stats is not None
        self._append(samples)
        if self._stats.removed:
            where = f"the oldest samples were removed: {THINNING.where}"
            self._tell_once("warning", f"{self._own.name(GPU_STATS)}: {where}")
        for event in [*self._states.changes(samples, time.time()), *merged(events)]:
            self._tell_event(event)
        for vendor in sorted({sample.vendor for sample in (*self._stats.standing, *self._stats.moving)}):
            self._tell_counters(vendor, [sample for sample in samples if sample.vendor == vendor])
        self._alerts.resolve("gpu_monitor", f"GPUs are sampled{'' if self._was_absent else ' again'}")
        self._was_absent = False
        self._failure = ""

    def _append(self, samples: Sequence[GpuSample]) -> None:
        assert self._stats is not None
        assert self._step is not None
        now = time.time()
        self._stats.append(samples, time=now, global_step=self._step.read(), steady=self._clock.at(now))

    def failed(self, restart: Restart) -> None:
        """Fire an alert of it, unless it repeats the last one or all GPUs have already failed."""
        self._close()
        self._last_failure = restart.message
        if restart.message != self._failure and not self._states.have_failed:
            self._alerts.fire("gpu_monitor", restart.severity, restart.message, **restart.facts)
            self._failure = restart.message

    def _sample(self) -> None:
        try:
            self._loop.run()
        finally:
            self._close()

    def _end_without_sample(self) -> None:
        """Count the time since the last sample as unmeasured, in a last record; no driver answered for it."""
        if not self._devices:
            return
        with contextlib.suppress(MonitoringError, OSError):  # reported when it failed first
            self._open(self._devices)
            self._append([device.sample("error", self._last_failure) for device in self._devices])

    def _close(self) -> None:
        for opened in (self._stats, self._step):
            if opened is not None:
                opened.close()
        self._stats = self._step = None

    def _tell_event(self, event: GpuEvent) -> None:
        """Report an event, unless a GPU is lost or unreadable: rules find that in the samples."""
        if event.kind not in WORDS:
            severity: Severity = "info" if event.kind == "back" else "error"
            self._alerts.add(
                f"gpu_{event.kind}", severity, event.message, subject=event.uuid, value=event.code
            )

    def _tell_counters(self, vendor: str, samples: Sequence[GpuSample]) -> None:
        """Report energy counters of a driver that stand still, by one alert until all of them move again."""
        assert self._stats is not None
        of_vendor = {sample.index for sample in samples}
        before = self._standing & of_vendor
        self._standing |= {sample.index for sample in self._stats.standing}
        self._standing -= {sample.index for sample in self._stats.moving}
        standing = [sample for sample in samples if sample.index in self._standing]
        if standing and not before:
            self._alerts.fire("gpu_energy", "warning", _stand_still(standing, len(samples)), subject=vendor)
        elif not standing:
            message = f"the energy counters of the {vendor} driver move again"
            self._alerts.resolve("gpu_energy", message, subject=vendor)


def _stand_still(samples: Sequence[GpuSample], num_gpus: int) -> str:
    """Return the alert's sentence about GPUs of one driver, of `num_gpus`, whose counters stand still."""
    if len(samples) == 1:
        it = samples[0]
        return f"{gpu_name(it)} draws power, but its energy counter stands still: power is integrated"
    those = f"all {num_gpus}" if len(samples) == num_gpus else f"{len(samples)} of {num_gpus}"
    vendor = samples[0].vendor
    return f"{those} {vendor} GPUs draw power, but their energy counters stand still: power is integrated"


def merged(events: Sequence[GpuEvent]) -> list[GpuEvent]:
    """Return the events of one look, alike ones as one: a failing GPU can report hundreds per second."""
    alike = [(event.index, event.kind, event.code) for event in events]
    found = []
    for place, event in enumerate(events):
        if alike.index(alike[place]) == place:
            times = alike.count(alike[place])
            found.append(event if times == 1 else event._replace(message=f"{event.message} ({times} times)"))
    return found
