"""Reads the runs in a directory from their files, for an exporter to show."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from monitoring.errors import MonitoringError
from monitoring.exporters._families import ShownRun
from monitoring.exporters._monitor_files import STALE_SAMPLE, SUFFIX, ShownMonitor, monitors
from monitoring.exporters._shared_port import SharedPort
from monitoring.host.name import host_name
from monitoring.host.process import is_alive
from monitoring.journal.files import ALERTS, GPU_STATS, JOURNAL, RUN_JSON, SYSTEM_STATS
from monitoring.journal.ranks import rank_journals, sample_journals
from monitoring.journal.records import Record, as_number
from monitoring.journal.run_json import read_run_json
from monitoring.journal.run_metrics import RankMetrics, RunMetrics
from monitoring.journal.run_state import RunState, read_end
from monitoring.journal.tail import RecordTail

# Seconds for which a run is still shown after its end, so that no scrape misses it.
KEEP_ENDED = 300.0


class RunFiles:
    """One run directory and its state; `read` takes in what is new."""

    def __init__(self, directory: Path) -> None:
        """RunDirectoryError if there is no run."""
        self.directory = directory
        self.state = RunMetrics()
        self._read_run_json()
        self._journals = {0: RecordTail(directory / JOURNAL)}
        self._samples: dict[Path, RecordTail] = {}
        self._alerts = RecordTail(directory / ALERTS)
        self._suffix = ""
        self._computing: dict[tuple[object, ...], str] = {}  # host, index and UUID of a GPU -> rank

    @property
    def name(self) -> str:
        return str(self.run["tracking"]["name"]) + self._suffix

    @property
    def first_started(self) -> float:
        """When the first attempt began, in UTC epoch seconds."""
        return float(self.run["attempts"][0]["started"])

    @property
    def host(self) -> str:
        return str(self._attempt["host"])

    def set_apart(self) -> None:
        """Show the run under a name of its own, because another has the same."""
        self._suffix = f" ({self.run['run_id'][:8]})"

    def read(self) -> None:
        """Take in the new records of all files."""
        for rank, path in rank_journals(self.directory).items():
            if rank not in self._journals:
                self._journals[rank] = RecordTail(path)
                self.state.ranks[rank] = RankMetrics()
        attempt = self.state.ranks[0].attempt
        for rank, journal in self._journals.items():
            for record in journal.new():
                self.state.ranks[rank].update(record)
        for kind, update in ((GPU_STATS, self.state.update_gpus), (SYSTEM_STATS, self.state.update_machine)):
            for path in sample_journals(self.directory, kind).values():
                for record in self._samples.setdefault(path, RecordTail(path)).new():
                    update(record)
        for record in self._alerts.new():
            self.state.update_alerts(record)
        if self.state.ranks[0].attempt != attempt:
            self._read_run_json()

    def is_running(self) -> bool:
        """Whether the newest attempt has not ended, as far as this host can tell."""
        return self._is_running(self.state.ranks[0])

    def ended_long_ago(self, now: float, state: RunState | None = None) -> bool:
        """Whether the run ended so long ago that its end need not be shown; before `read`, by `state`."""
        rank = state or self.state.ranks[0]
        return not self._is_running(rank) and now - (rank.last_time or 0.0) > KEEP_ENDED

    def _is_running(self, rank: RunState) -> bool:
        if rank.ended:
            return False
        away = bool(self._attempt["host"] != host_name())
        return away or is_alive(self._attempt)

    def samples(self, now: float) -> list[dict[str, Any]]:
        """Return the GPUs of each host as last sampled; none of one whose sampling is over."""
        return [
            {**record, "host": host or self.host}
            for host, record in sorted(self.state.gpus.items())
            if _is_of_now(record, now) and isinstance(record.get("multi_gpu_data"), list)
        ]

    def machines(self, now: float) -> dict[str, Record]:
        """Return the newest sample of each host, as of `samples`."""
        return {host: record for host, record in self.state.machines.items() if _is_of_now(record, now)}

    def rank_of(self, gpu: dict[str, Any], host: str) -> str:
        """Return the rank that computes on a GPU; empty where the sample names none of the run's processes.

        Of a GPU whose processes cannot be read now, such as a lost one: the rank that did.
        """
        which = (host, gpu.get("index"), gpu.get("uuid"))
        if gpu.get("processes") is not None:
            self._computing[which] = self._rank_among(gpu["processes"], host)
        return self._computing.get(which, "")

    def _rank_among(self, found: list[dict[str, Any]], on: str) -> str:
        pids = {process.get("pid") for process in found}
        processes = {(self.host, self._attempt["pid"]): 0}
        processes |= {state.process: rank for rank, state in self.state.ranks.items() if rank}
        ranks = [rank for (host, pid), rank in processes.items() if host == on and pid in pids]
        return str(min(ranks)) if ranks else ""

    def _read_run_json(self) -> None:
        self.run = read_run_json(self.directory)
        self._attempt: dict[str, Any] = self.run["attempts"][-1]


def _is_of_now(record: Record, now: float) -> bool:
    """Whether a sample is recent; one of the future, as after the clock was set back, is not."""
    taken = as_number(record.get("time"))
    return taken is not None and abs(now - taken) <= STALE_SAMPLE


class Runs:
    """The run in a directory, or those in it and in its sub-directories, and those that share the port.

    Also such as begin later.

    Used by several threads: a scrape is a thread of its own.
    """

    def __init__(self, directory: Path, shared: SharedPort | None = None) -> None:
        self.directory = directory.resolve()
        self._shared_port = shared
        self._lock = threading.Lock()
        self._held: dict[Path, RunFiles] = {}
        self._passed_over: dict[Path, int] = {}  # run directory -> size of its journal then

    def read(self) -> list[ShownRun]:
        """All runs that are running or have ended lately, brought up to date, and monitors, by name."""
        with self._lock:
            now, before = time.time(), set(self._held)
            for directory in self._directories():
                if directory not in self._held:
                    self._take(directory, now)
            for directory, run in list(self._held.items()):
                if not self._read(directory, run):
                    self._held.pop(directory)
                elif directory != self.directory and run.ended_long_ago(now):
                    self._pass_over(directory)
            self._tell_apart([run for directory, run in self._held.items() if directory not in before])
            shown: list[ShownRun] = [*self._held.values(), *self._monitors()]
            return sorted(shown, key=lambda run: run.name)

    def directories(self) -> list[Path]:
        """Return the directories of the runs that `read` has found."""
        with self._lock:
            return list(self._held)

    def last_seq(self, directory: Path) -> int:
        """Return the `seq` of the last record of a run's journal that is shown."""
        with self._lock:
            run = self._held.get(directory.resolve())
            return run.state.ranks[0].last_seq if run else 0

    def forget_ended(self) -> None:
        """Let no other exporter show runs that have ended: that was scraped, or waited for long enough."""
        with self._lock:
            for directory, run in self._held.items():
                if not run.is_running():
                    self._forget(directory)

    def _directories(self) -> Iterator[Path]:
        yield from self._own_directories()
        if self._shared_port is not None:
            yield from (path for path in self._shared_port.runs() if path.suffix != SUFFIX)

    def _monitors(self) -> Sequence[ShownMonitor]:
        taken = [(run.name, run.host) for run in self._held.values()]
        return monitors(self._shared_port, taken) if self._shared_port is not None else ()

    def _own_directories(self) -> Iterator[Path]:
        if (self.directory / RUN_JSON).exists():
            yield self.directory
            return
        for pattern in (f"*/{RUN_JSON}", f"*/*/{RUN_JSON}"):
            # results/latest leads to a directory that is found under its own name, too
            yield from {path.parent.resolve() for path in self.directory.glob(pattern)}

    def _take(self, directory: Path, now: float) -> None:
        # it ended long ago and has not grown: not even its end is read again
        if self._passed_over.get(directory) == _size(directory / JOURNAL):
            return
        try:
            run = RunFiles(directory)
        except MonitoringError:  # no run yet, or none that can be read
            self._forget(directory)
            return
        # How its journal ends says it, without reading all of it.
        if directory != self.directory and run.ended_long_ago(now, read_end(directory / JOURNAL)):
            self._pass_over(directory)
        else:
            self._held[directory] = run

    def _pass_over(self, directory: Path) -> None:
        """Show it no more, until its journal grows."""
        self._held.pop(directory, None)
        self._passed_over[directory] = _size(directory / JOURNAL)
        self._forget(directory)

    def _forget(self, directory: Path) -> None:
        if self._shared_port is not None:
            self._shared_port.remove(directory)

    def _read(self, directory: Path, run: RunFiles) -> bool:
        """Bring a run up to date; False for another's that was removed, which must not take all along."""
        try:
            run.read()
        except (MonitoringError, OSError):
            if directory == self.directory:
                raise
            return False
        return True

    def _tell_apart(self, new: list[RunFiles]) -> None:
        """Name runs apart, as no two series may be alike: of one name and host, only the first keeps it."""
        taken = {(run.name, run.host) for run in self._held.values() if run not in new}
        for run in sorted(new, key=lambda run: run.first_started):
            if (run.name, run.host) in taken:
                run.set_apart()
            taken.add((run.name, run.host))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
