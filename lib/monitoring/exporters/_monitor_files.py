"""Files by which monitors (gpu_monitor) that share an exporter's port say what it is to show of them.

Each file lies in the private folder of the shared port, and names the process that writes it: what a killed
one has left is removed by the next reader.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import orjson

from monitoring.exporters._families import ShownRun
from monitoring.exporters._shared_port import SharedPort
from monitoring.host.process import is_alive, process_started
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.records import Record
from monitoring.journal.run_metrics import Histogram, RankMetrics, RunMetrics

SUFFIX = ".monitor"

# Age in seconds from which on a GPU sample is not shown: its sampling has stopped.
STALE_SAMPLE = 60.0

# Fields of a rank's state that are shown; the rest is how they come about.
SHOWN = tuple(field.name for field in fields(RankMetrics) if not field.name.startswith("_"))


class MonitorFile:
    """A monitor of another process, as it last wrote it down."""

    def __init__(self, path: Path) -> None:
        """OSError if it is not there, ValueError or LookupError if that is no such file."""
        found = orjson.loads(path.read_bytes())
        self.run: dict[str, Any] = found["run"]
        self.name: str = found["name"]
        self.host: str = found["host"]
        self.state = RunMetrics(ranks={0: _rank(found["rank"])})
        self.is_there = is_alive(found["process"])
        """Whether its process still is."""
        self._pid = found["process"]["pid"]
        self._trains: bool = found["trains"]
        self._samples: list[dict[str, Any]] = found["samples"]

    def is_running(self) -> bool:
        return self._trains

    def samples(self, now: float) -> list[dict[str, Any]]:
        return [record for record in self._samples if abs(now - record["time"]) <= STALE_SAMPLE]

    def machines(self, now: float) -> dict[str, Record]:
        """None: a monitor samples GPUs."""
        return {}

    def rank_of(self, gpu: dict[str, Any], host: str) -> str:
        return rank_on(gpu, self._pid)


def rank_on(gpu: Mapping[str, Any], pid: int) -> str:
    """Return the rank 0 of a process that a sample of a GPU shows, else an empty text."""
    return "0" if pid in {process.get("pid") for process in gpu.get("processes") or []} else ""


def write_monitor(path: Path, shown: ShownRun, now: float) -> None:
    """Write down what a monitor of this process shows; OSError as of any file."""
    about = {
        "name": shown.name,
        "host": shown.host,
        "run": shown.run,
        "process": {"pid": os.getpid(), "pid_started": process_started(os.getpid())},
        "trains": shown.is_running(),
        "samples": shown.samples(now),
        "rank": _plain(shown.state.ranks[0]),
    }
    write_atomically(path, orjson.dumps(about), durable=False)


def monitors(
    shared: SharedPort, taken: Collection[tuple[str, str]], *, but: Path | None = None
) -> list[MonitorFile]:
    """Return a port's monitors; of one name and host, also of `taken` ones, the first has just the name."""
    found: list[MonitorFile] = []
    for path in shared.runs():
        if path.suffix != SUFFIX or path == but:
            continue
        try:
            monitor = MonitorFile(path)
        except (OSError, ValueError, LookupError, TypeError):
            shared.remove(path)
            continue
        if not monitor.is_there:
            shared.remove(path)
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        if (monitor.name, monitor.host) in {*taken, *((one.name, one.host) for one in found)}:
            monitor.name += f" ({monitor.run['run_id'][:8]}, {path.stem})"
        found.append(monitor)
    return found


def _plain(rank: RankMetrics) -> dict[str, Any]:
    held = {name: getattr(rank, name) for name in SHOWN}
    return {**held, "durations": asdict(rank.durations), "gauges": dict(rank.gauges)}


def _rank(held: Mapping[str, Any]) -> RankMetrics:
    gauges = {
        name: (math.nan if value is None else value, seq) for name, (value, seq) in held["gauges"].items()
    }
    return RankMetrics(**{**held, "durations": Histogram(**held["durations"]), "gauges": gauges})
