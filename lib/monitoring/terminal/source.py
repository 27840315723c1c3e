"""Where a dashboard gets its GPU samples from: this machine's drivers, or what a run recorded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.gpu.history import GpuHistory
from monitoring.gpu.sample import GpuEvent, GpuSample, Snapshot
from monitoring.host.steady_clock import SteadyClock
from monitoring.sampler_process.loop import ChosenGpus

if TYPE_CHECKING:
    from monitoring.gpu.energy import EnergyMeter

LOOKING = "looking for GPUs …"
SILENT = "the driver does not answer"

# Bytes of a long gpu_stats.jsonl that are read at first: 8 GPUs take about 10 KB per sample.
LAST_BYTES = 4 * 2**20

# Seconds after which a recorded sample is no longer about now.
STALE = 60.0

# Samples that `s` saves.
SAVED = 300


class LiveGpus(ChosenGpus):
    """This machine's GPUs, sampled by a process and a thread of their own: no driver holds up the screen."""

    def __init__(self, indices: Sequence[int] | None, interval: float, *, simulated: int = 0) -> None:
        """`indices` None: all of them. `simulated` GPUs, which do not exist, replace those that do."""
        super().__init__(indices, SAVED)
        self.arrived: Callable[[], object] = bool
        """Called by another thread when there is something to show."""
        self.host: str | None = None
        """The machine of the GPUs, None if that is this one."""
        # the sampling thread appends, the screen's takes: a deque needs no lock for that
        self._new: deque[Snapshot] = deque(maxlen=SAVED)
        self._began = self._came = time.monotonic()
        self._clock = SteadyClock()
        self._silent_after = 5.0 + 3 * interval
        self._interval = interval
        self._meter: EnergyMeter | None = None
        self._begin(interval, simulated=simulated)

    def look(self) -> list[Snapshot]:
        """Return the new samples, with energy: measured here, so that the first one waits for no import."""
        from monitoring.gpu.energy import EnergyMeter

        found = []
        while self._new:
            at, samples = self._new.popleft()
            if self._meter is None:
                self._meter = EnergyMeter(interval=self._interval, started=at)
            found.append(Snapshot(at, self._meter.measure(samples, at)[0]))
        self.history.add(*found)
        if found:
            self._came = time.monotonic()
        return found

    def problem(self) -> str | None:
        """Return why there is no current sample, in a sentence."""
        if not self.ready.is_set():
            return LOOKING if time.monotonic() - self._began < self._silent_after else SILENT
        latest = self.history.latest
        if latest is not None and latest.gpus and time.monotonic() - self._came < self._silent_after:
            return None  # what is wrong with a GPU is shown in its line
        return "; ".join(self.problems) or (LOOKING if self._new else SILENT)

    def close(self) -> None:
        self._end()

    # ------------------------------------------------------------- the sampling thread

    def take(self, samples: Sequence[GpuSample], events: Sequence[GpuEvent]) -> None:
        self._new.append(Snapshot(self._clock.now(), self._chosen(samples)))
        self._set_ready()

    def _set_ready(self) -> None:
        super()._set_ready()
        self.arrived()


class RecordedGpus:
    """The samples that a run's agent writes, on whatever machine."""

    def __init__(self, directory: Path, host: int = 0) -> None:
        """`host` is the number of the host whose GPUs are shown, rank 0's first."""
        from monitoring.journal.tail import RecordTail

        hosts = self.hosts_in(directory)
        self.place = host % len(hosts)
        """The place of that host among them."""
        self.num_hosts = len(hosts)
        self.journal = hosts[self.place]
        self.history = GpuHistory(SAVED)
        self.host: str | None = ""
        self._tail = RecordTail(self.journal, last_bytes=LAST_BYTES)

    @property
    def system_stats(self) -> Path | None:
        """The run's journal of the machine of these GPUs; None if there is none."""
        from monitoring.journal.files import GPU_STATS, SYSTEM_STATS, host_of, of_host

        host = host_of(self.journal.name, GPU_STATS)
        path = self.journal.with_name(of_host(SYSTEM_STATS, host) if host else SYSTEM_STATS)
        return path if path.exists() else None

    @classmethod
    def are_in(cls, directory: Path) -> bool:
        return bool(cls.hosts_in(directory))

    @staticmethod
    def hosts_in(directory: Path) -> list[Path]:
        """Return the journal of GPU samples of each host of a run."""
        from monitoring.journal.files import GPU_STATS
        from monitoring.journal.ranks import sample_journals

        return list(sample_journals(directory, GPU_STATS).values())

    def look(self) -> list[Snapshot]:
        from monitoring.host.name import host_name
        from monitoring.journal.records import time_of
        from monitoring.terminal.past import samples_of

        found = []
        for record in self._tail.new():
            if record.get("event") == "gpu":
                host = str(record.get("host", ""))
                self.host = None if host == host_name() else host
                found.append(Snapshot(time_of(record), samples_of(record)))
        self.history.add(*found)
        return found

    def problem(self) -> str | None:
        times = [samples.time for samples in self.history.snapshots()[-2:]]
        if not times:
            return "the run has not recorded a sample yet"
        # as far ahead it is of before the clock was set back
        if abs(time.time() - times[-1]) < max(STALE, 3 * (times[-1] - times[0])):
            return None
        from monitoring.journal.structured_log import timestamp

        return f"recorded until {timestamp(times[-1])[:19]}Z, not since"

    def close(self) -> None:
        """Do nothing: no file is held open."""


GpuSource = LiveGpus | RecordedGpus
"""Samples, and what to show where there are none."""
