"""gpu_stats.jsonl: one record per sample, with every GPU and their aggregates; its one writer is the agent.

A run that is resumed, by another agent or another attempt, continues with the energy, hours and cost
that its last record has (see gpu_energy).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.gpu.aggregates import aggregate
from monitoring.gpu.energy import EnergyMeter
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.sample import MIB, GpuSample
from monitoring.journal.files import GPU_STATS
from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import RotatingJournal


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
    ) -> None:
        """`started` is when the attempt began, in UTC epoch seconds. Errors are those of a Journal."""
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
            directory / GPU_STATS, file_bytes=options.file_mb * MIB, keep=options.files
        )
        self._meter = EnergyMeter(hour_price=options.hour_price, interval=options.interval, started=started)
        self.before: Mapping[str, Any] | None = None
        """The last gpu record of the run, None if this writes the first."""
        last = self._journal.last
        if last is not None and last.get("event") == "gpu":
            self.before = last
            self._meter.resume(last, same_attempt=last["attempt"] == attempt)

    def append(self, samples: Sequence[GpuSample], *, time: float, global_step: int) -> Record:
        """Write the record of one look at all GPUs, at `time` (UTC epoch seconds), and return it.

        `global_step` is how many optimiser steps the training had then done, as far as its journal says.
        """
        measured, totals = self._meter.measure(samples, time)
        record: Record = {
            **self._envelope,
            "time": time,
            "global_step": global_step,
            "multi_gpu_data": [sample._asdict() for sample in measured],
            "aggregate_stats": {**aggregate(measured), **totals},
        }
        self._journal.append(record)
        return record

    def close(self) -> None:
        self._journal.close()
