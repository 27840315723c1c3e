"""Samples the machine for a run's agent: a thread that writes system_stats.jsonl."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitoring.agent.sample_threads.journal_sampling import JournalSampling
from monitoring.agent.sample_threads.last_step import LastStep
from monitoring.agent.sample_threads.run_processes import RunProcesses
from monitoring.gpu.options import MachineMonitorOptions
from monitoring.gpu.sample import MIB
from monitoring.host.backoff import Backoff
from monitoring.host.name import host_name
from monitoring.host.other_work import MachineWork
from monitoring.journal.alerts import Alerts
from monitoring.journal.encoding.archiver import Thinning
from monitoring.journal.files import OF_RANK_0, SYSTEM_STATS, HostFiles
from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import RotatingJournal
from monitoring.samplers.machine import MachineSampler

# Seconds that the end of a run waits for a last sample; a file system that is not responding may hold it up.
LAST_SAMPLE = 10.0


class SystemStats:
    """Turns samples into records of one attempt of a run, and appends them."""

    def __init__(
        self, directory: Path, run: Mapping[str, Any], file_bytes: int, keep: int, own: HostFiles = OF_RANK_0
    ) -> None:
        """`own` are the files of this host."""
        self._envelope: Record = {
            "event": "system",
            "time": 0.0,
            "seq": 0,
            "attempt": run["attempts"][-1]["attempt"],
            "global_step": 0,
            "correlation_id": run["run_id"],
            "host": host_name(),
        }
        path = directory / own.name(SYSTEM_STATS)
        self._journal = RotatingJournal(path, file_bytes=file_bytes, keep=keep)
        self._step = LastStep(directory / own.journal)

    def append(self, values: Mapping[str, object]) -> None:
        """Write one sample's record."""
        now = {"time": time.time(), "global_step": self._step.read()}
        self._journal.append({**self._envelope, **now, **values})

    def close(self) -> None:
        self._journal.close()
        self._step.close()


# A thinned record never spans two attempts.
THINNING = Thinning(
    "SYSTEM_STATS_FILES times SYSTEM_STATS_FILE_MB are full",
    distinct=lambda record: (record["attempt"], record["event"]),
)


class MachineSampling(JournalSampling):
    """Samples the machine of one attempt of a run; one thread calls `start`, `watch` and `end`."""

    journal, thinning = SYSTEM_STATS, THINNING

    def __init__(self, directory: Path, run: Mapping[str, Any], alerts: Alerts, own: HostFiles) -> None:
        """`run` is the run.json of a run that asks for samples, `own` are the files of this host."""
        super().__init__(directory, run, alerts, own, MachineMonitorOptions.asked(run["machine_monitor"]))
        self._ended_at = 0.0

    def end(self) -> None:
        """Request one more sample, the last."""
        self._ended_at = self._ended_at or time.monotonic()
        super().end()

    def watch(self) -> None:
        """Once the end was requested, do without a last sample that does not come."""
        if self._ending.is_set() and time.monotonic() - self._ended_at > LAST_SAMPLE:
            self.done.set()

    def _sample(self) -> None:
        backoff = Backoff()
        try:
            while True:
                began = time.monotonic()
                try:
                    self._repeat()
                    return
                except Exception as error:  # noqa: BLE001 - whatever fails becomes an alert, and is tried again
                    message = f"the machine is not sampled: {type(error).__name__}: {error}"
                    if message != self._failure:
                        self._alerts.fire("machine_monitor", "warning", f"{message}; it is tried again")
                        self._failure = message
                    if self._ending.wait(backoff.failed(lived=time.monotonic() - began)):
                        return
        finally:
            self.done.set()

    def _repeat(self) -> None:
        """Sample until the end, and once more; missed samples are not caught up."""
        processes = RunProcesses(self._directory, self._run["attempts"][-1])
        trainer = MachineWork(None, left_out=[os.getpid()])  # the agent is the trainer's child
        sampler = MachineSampler(self._directory, trainer=trainer)
        options = self._options
        stats = SystemStats(self._directory, self._run, options.file_mb * MIB, options.files, self._own)
        try:
            due = time.monotonic()
            while True:
                is_last = self._ending.is_set()
                for pid, started in processes.roots().items():
                    trainer.add_root(pid, started)
                stats.append(sampler.sample()._asdict())
                self._alerts.resolve("machine_monitor", "the machine is sampled again")
                self._failure = ""
                if is_last:
                    return
                due = max(due + options.interval, time.monotonic())
                self._ending.wait(due - time.monotonic())
        finally:
            stats.close()
