"""Where a dashboard gets its GPU samples from: this machine's drivers, or what a run recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from monitoring.gpu.sample import GpuSample
from monitoring.gpu_monitor import GpuIndex, GPUMonitor
from monitoring.gpu_monitor.history import GpuHistory, Snapshot
from monitoring.journal.files import GPU_STATS
from monitoring.journal.record_tail import RecordTail
from monitoring.journal.records import Record
from monitoring.journal.structured_log import timestamp
from monitoring.terminal.screen import LOOKING

# How much of a long gpu_stats.jsonl is read: 8 GPUs take about 10 KB a sample.
LAST_BYTES = 4 * 2**20

# Seconds after which a recorded sample is no longer about now.
STALE = 60.0


SILENT = "the driver does not answer"


class GpuSource(Protocol):
    """Samples, and what to show where there are none."""

    history: GpuHistory

    def look(self) -> None:
        """Take in what is new."""

    def problem(self) -> str | None:
        """Why there is no sample of now, in a sentence."""

    def close(self) -> None: ...


class LiveGpus:
    """This machine's GPUs, sampled on a thread of their own: a driver that hangs stops no screen."""

    def __init__(self, gpu: GpuIndex, interval: float, history_size: int) -> None:
        self._monitor = GPUMonitor(gpu, interval, history_size=history_size, log_dir=None, quiet=True)
        self._monitor.start()
        self.history = self._monitor.history
        self._began = time.monotonic()
        self._silent_after = 5.0 + 3 * interval
        self._latest: Snapshot | None = None
        self._came = 0.0

    def look(self) -> None:
        """Nothing to do: the monitor's thread adds to the history."""

    def problem(self) -> str | None:
        if not self._monitor.ready.is_set():
            return LOOKING if time.monotonic() - self._began < self._silent_after else SILENT
        latest = self.history.latest
        if latest is not self._latest:
            self._latest, self._came = latest, time.monotonic()
        if latest is not None and latest.gpus and time.monotonic() - self._came < self._silent_after:
            return None  # what is wrong with a GPU is shown in its line
        return "; ".join(self._monitor.problems) or SILENT

    def close(self) -> None:
        self._monitor.stop()


class RecordedGpus:
    """The samples that a run's agent writes, on whatever machine."""

    def __init__(self, directory: Path, history_size: int) -> None:
        self.history = GpuHistory(history_size)
        self._tail = RecordTail(directory / GPU_STATS, last_bytes=LAST_BYTES)

    @staticmethod
    def are_in(directory: Path) -> bool:
        return (directory / GPU_STATS).exists()

    def look(self) -> None:
        for record in self._tail.new():
            if record.get("event") == "gpu":
                self.history.add(snapshot(record))

    def problem(self) -> str | None:
        latest = self.history.latest
        if latest is None:
            return "the run has not recorded a sample yet"
        times = [snapshot.time for snapshot in self.history.snapshots()[-2:]]
        # as far ahead it is of before the clock was set back
        if abs(time.time() - latest.time) < max(STALE, 3 * (times[-1] - times[0])):
            return None
        return f"recorded until {timestamp(latest.time)[:19]}Z, not since"

    def close(self) -> None:
        """Nothing is held open."""


def snapshot(record: Record) -> Snapshot:
    """A gpu record as the sampler saw it; fields that this version does not know are left out."""
    gpus: list[dict[str, object]] = record["multi_gpu_data"]  # type: ignore[assignment]
    samples = [GpuSample(**{key: gpu.get(key) for key in GpuSample._fields}) for gpu in gpus]  # type: ignore[arg-type]
    return Snapshot(float(str(record["time"])), samples)
