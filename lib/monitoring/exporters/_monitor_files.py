"""Files by which monitors (gpu_monitor) that share an exporter's port say what it is to show of them.

Each file lies in the private folder of the shared port, and names the process that writes it: what a killed
one has left is removed by the next reader.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from monitoring.exporters._shared_port import SharedPort
from monitoring.host.process import is_alive, process_started
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.records import Record
from monitoring.journal.run_metrics import Histogram, RankMetrics, RunMetrics

SUFFIX = ".monitor"

# Age in seconds from which on a GPU sample is not shown: its sampling has stopped.
STALE_SAMPLE = 60.0


@dataclass
class ShownMonitor:
    """A monitor, and the training that calls it, as exporters show a run (_families.ShownRun)."""

    name: str
    host: str
    run: dict[str, Any]
    pid: int
    """Its process, which computes on the GPUs of rank 0."""
    rank: RankMetrics
    trains: bool = False
    newest: Sequence[dict[str, Any]] = ()
    """Its newest gpu record, none before the first."""

    @property
    def state(self) -> RunMetrics:
        return RunMetrics(ranks={0: self.rank})

    def is_running(self) -> bool:
        """Whether a training is under way."""
        return self.trains

    def samples(self, now: float) -> list[dict[str, Any]]:
        return [record for record in self.newest if abs(now - record["time"]) <= STALE_SAMPLE]

    def machines(self, now: float) -> dict[str, Record]:
        """None: a monitor samples GPUs."""
        return {}

    def rank_of(self, gpu: dict[str, Any], host: str) -> str:
        """Return 0 for a GPU that the process computes on, else an empty text."""
        return "0" if self.pid in {process.get("pid") for process in gpu.get("processes") or []} else ""


def write_monitor(path: Path, shown: ShownMonitor, now: float) -> None:
    """Write down what a monitor of this process shows; OSError as of any file."""
    about = {
        "name": shown.name,
        "host": shown.host,
        "run": shown.run,
        "process": {"pid": shown.pid, "pid_started": process_started(shown.pid)},
        "trains": shown.trains,
        "samples": shown.samples(now),
        "rank": shown.rank,  # without what is private in it, which is how it comes about
    }
    write_atomically(path, orjson.dumps(about), durable=False)


def monitors(
    shared: SharedPort, taken: Collection[tuple[str, str]], *, but: Path | None = None
) -> list[ShownMonitor]:
    """Return a port's monitors; of one name and host, also of `taken` ones, the first has just the name."""
    found: list[ShownMonitor] = []
    for path in shared.runs():
        if path.suffix != SUFFIX or path == but:
            continue
        try:
            monitor = _read(path)
        except (OSError, ValueError, LookupError, TypeError):
            shared.remove(path)
            continue
        if monitor is None:
            shared.remove(path)
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        if (monitor.name, monitor.host) in {*taken, *((one.name, one.host) for one in found)}:
            monitor.name += f" ({monitor.run['run_id'][:8]}, {path.stem})"
        found.append(monitor)
    return found


def _read(path: Path) -> ShownMonitor | None:
    """Return a monitor of another process as it last wrote it down; None once that process is gone.

    OSError if it is not there, ValueError or LookupError if that is no such file.
    """
    told = orjson.loads(path.read_bytes())
    about = {name: told[name] for name in ("name", "host", "run", "trains")}
    monitor = ShownMonitor(
        **about, pid=told["process"]["pid"], rank=_rank(told["rank"]), newest=told["samples"]
    )
    return monitor if is_alive(told["process"]) else None


def _rank(held: Mapping[str, Any]) -> RankMetrics:
    gauges = {
        name: (math.nan if value is None else value, seq) for name, (value, seq) in held["gauges"].items()
    }
    rank = RankMetrics()
    vars(rank).update(held, durations=Histogram(**held["durations"]), gauges=gauges)
    return rank
