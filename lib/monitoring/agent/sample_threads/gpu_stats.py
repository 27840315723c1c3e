"""gpu_stats.jsonl: one record per sample, with every GPU and the run's together; its one writer is the agent.

Another host than rank 0's has gpu_stats.HOST.jsonl, written by the agent there.

A run that is resumed, by another agent or another attempt, continues with the energy, hours and cost
that its last record has (see RunSums).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from monitoring.gpu.aggregates import aggregate, is_the_runs
from monitoring.gpu.energy import EnergyMeter, Used
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.run_devices import RunDevices, Shares, every_gpu
from monitoring.gpu.sample import MIB, GpuSample
from monitoring.journal.encoding.archiver import Thinning
from monitoring.journal.files import GPU_STATS, OF_RANK_0, HostFiles
from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import RotatingJournal


@dataclass
class _Sum:
    """Joules and GPU seconds; None as long as nothing is known of them."""

    joules: float | None = None
    gpu_seconds: float | None = None

    def add(self, joules: float | None, gpu_seconds: float | None) -> None:
        if joules is not None:
            self.joules = (self.joules or 0.0) + joules
        if gpu_seconds is not None:
            self.gpu_seconds = (self.gpu_seconds or 0.0) + gpu_seconds


class RunSums:
    """Energy, GPU hours and cost of a run: its share of its GPUs, over all attempts.

    Begin a new one for each agent and attempt, and resume it: what the GPUs use between two attempts is not
    the run's. As long as it is not known which GPUs are the run's, what each would add is kept aside, and
    counts from the attempt's beginning once it is.
    """

    def __init__(self, *, hour_price: float = 0.0) -> None:
        """`hour_price` is that of one GPU for one hour, 0 for none."""
        self._price = hour_price
        self._run = _Sum()
        self._kept: dict[int, _Sum] = {}
        self._sources: set[str] = set()
        self._unmeasured = 0.0

    def resume(self, totals: Mapping[str, Any]) -> None:
        """Continue after the `aggregate_stats` of the run's last gpu record."""
        hours = totals["gpu_hours"]
        self._run = _Sum(totals["energy_joules"], None if hours is None else 3600.0 * hours)
        self._sources = set((totals["energy_source"] or "").split("+")) - {""}
        self._unmeasured = totals["unmeasured_seconds"] or 0.0

    def add(self, samples: Sequence[GpuSample], used: Used, shares: Shares) -> dict[str, Any]:
        """Add what the GPUs of `samples` used, and return the totals of the run."""
        own = shares.of if shares.source is not None else ()
        is_silent = any(index in own for index in used.silent)
        self._unmeasured += used.seconds if used.is_gap or is_silent else 0.0
        for sample, joules in zip(samples, used.joules, strict=True):
            share = shares.of.get(sample.index)
            if share is None:
                continue
            known = self._run
            if shares.source is None:
                known = self._kept.setdefault(sample.index, _Sum())
            elif sample.energy_source is not None:
                self._sources.add(sample.energy_source)
            known.add(None if joules is None else share * joules, share * used.seconds)
        if shares.source is not None:
            for index, kept in self._kept.items():
                if index in shares.of:
                    self._run.add(kept.joules, kept.gpu_seconds)
            # what was kept of other GPUs is not the run's
            self._kept.clear()
        return self._totals()

    def _totals(self) -> dict[str, Any]:
        seconds = self._run.gpu_seconds
        hours = None if seconds is None else seconds / 3600
        return {
            "energy_joules": self._run.joules,
            "energy_source": "+".join(sorted(self._sources)) or None,
            "gpu_hours": hours,
            "cost": hours * self._price if hours is not None and self._price else None,
            "unmeasured_seconds": self._unmeasured,
        }


class GpuStats:
    """Turns samples into records of one attempt of a run, and appends them."""

    def __init__(
        self,
        directory: Path,
        options: GpuMonitorOptions,
        *,
        run_id: str,
        attempt: int,
        started: float,
        host: str,
        devices: RunDevices | None = None,
        own: HostFiles = OF_RANK_0,
    ) -> None:
        """`started` is when the attempt began, in UTC epoch seconds. Errors are those of a Journal.

        `devices` tells the run's GPUs from others; without it all are the run's.
        """
        self.standing: Sequence[GpuSample] = ()
        """GPUs whose energy counter the last look found to stand still."""
        self.moving: Sequence[GpuSample] = ()
        """GPUs whose energy counter it found to move again."""
        self._envelope: Record = {
            "event": "gpu",
            "time": 0.0,
            "seq": 0,
            "attempt": attempt,
            "global_step": 0,
            "correlation_id": run_id,
            "host": host,
        }
        self._journal = RotatingJournal(
            directory / own.name(GPU_STATS), file_bytes=options.file_mb * MIB, keep=options.files
        )
        self._meter = EnergyMeter(interval=options.interval, started=started)
        self._sums = RunSums(hour_price=options.hour_price)
        self._shares: Callable[[Sequence[GpuSample]], Shares]
        self._shares = devices.look if devices is not None else every_gpu
        self.before: Mapping[str, Any] | None = None
        """The last gpu record of the run, None if this writes the first."""
        last = self._journal.last
        if last is not None and last.get("event") == "gpu":
            self.before = last
            totals: Mapping[str, Any] = last["aggregate_stats"]  # type: ignore[assignment]
            # one that had not found out which GPUs are the run's has added nothing
            same_attempt = last["attempt"] == attempt and totals.get("devices", ()) is not None
            self._meter.resume(last, same_attempt=same_attempt)
            self._sums.resume(totals)
            if devices is not None and same_attempt:
                devices.resume(last)

    def append(
        self, samples: Sequence[GpuSample], *, time: float, global_step: int, steady: float | None = None
    ) -> Record:
        """Write the record of one look at all GPUs, at `time` (UTC epoch seconds), and return it.

        `steady` is the same moment by a clock without leaps, for what was used since the last look; `time`
        without it. `global_step` is how many optimizer steps the training had then done, by its journal.
        """
        measured, used = self._meter.measure(samples, time if steady is None else steady)
        self.standing, self.moving = used.standing, used.moving
        shares = self._shares(samples)
        own = shares.of if shares.source is not None else {}
        gpus = [sample._asdict() for sample in measured]
        for gpu in gpus:
            gpu["run_share"] = own.get(gpu["index"])
        record: Record = {
            **self._envelope,
            "time": time,
            "global_step": global_step,
            "multi_gpu_data": gpus,
            "aggregate_stats": {
                **aggregate([sample for sample in measured if sample.index in own]),
                "devices": sorted(own) if shares.source is not None else None,
                "devices_source": shares.source,
                **self._sums.add(measured, used, shares),
            },
        }
        # a sampler's process answers in JSON, which has neither NaN nor infinities: each null was a None
        self._journal.append(record, is_finite=True)
        return record

    @property
    def removed(self) -> int:
        """Number of full files that were removed before they were compressed."""
        return self._journal.removed

    def close(self) -> None:
        self._journal.close()


def _distinct(record: Record) -> object:
    """Return what thinning keeps: each attempt, state of a GPU and change of whether it is the run's."""
    gpus = cast("list[dict[str, Any]]", record.get("multi_gpu_data", ()))
    return record["attempt"], record["event"], [(gpu["state"], is_the_runs(gpu)) for gpu in gpus]


THINNING = Thinning("GPU_STATS_FILES times GPU_STATS_FILE_MB are full", _distinct)
