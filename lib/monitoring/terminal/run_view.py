"""A run as the dashboard shows it: the numbers of its last steps and when it will be done."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from monitoring.errors import MonitoringError
from monitoring.gpu.sample import MIB
from monitoring.host.name import host_name
from monitoring.host.process import is_alive
from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.files import ALERTS, JOURNAL, RUN_JSON
from monitoring.journal.record_tail import RecordTail
from monitoring.journal.records import Record, as_number, parse, read_records
from monitoring.journal.run_json import read_run_json
from monitoring.journal.run_metrics import RankMetrics
from monitoring.journal.structured_log import timestamp

# How much of a long journal is read: some thousand step records.
LAST_BYTES = 2**20

# Steps that the graphs take of the part before that, each from a stretch of so many bytes.
EARLIER = 400
STRETCH = 4096

# Step records that are kept for the graphs; of more, every second one, then every fourth and so on.
MOST_POINTS = 1000

# The fields of a step record that a point holds, in its order.
POINT_FIELDS = ("train_loss", "lr", "grad_norm", "samples_per_sec", "gpu_mem_allocated", "gpu_mem_reserved")

# Alerts that end when the GPU answers again.
GPU_FAILURES = ("gpu_lost", "gpu_error")


class Point(NamedTuple):
    """One step record; None is not measured."""

    seq: int
    time: float
    step: int
    loss: float | None
    lr: float | None
    grad_norm: float | None
    samples_per_sec: float | None
    allocated_gb: float | None = None
    """1e9 bytes, as journals have it."""
    reserved_gb: float | None = None


class RunView:
    """One run directory; `look` takes in what is new. It only reads."""

    def __init__(self, directory: Path) -> None:
        """RunDirectoryError if there is no run."""
        self.directory = directory
        self.rank = RankMetrics()
        """The state and metrics of rank 0."""
        self.points: list[Point] = []
        self.alert: str | None = None
        """The text of the newest alert that fires; None if none does."""
        self._every = 1  # one of so many step records is kept
        self._num_steps = 0
        self._firing: dict[tuple[str, str], str] = {}
        self._run = read_run_json(directory)
        self._journal = RecordTail(directory / JOURNAL, last_bytes=LAST_BYTES)
        self._alerts = RecordTail(directory / ALERTS)
        for record, _ in islice(read_records(directory / JOURNAL), 1):
            self._take(record)  # the length of the training is at the journal's beginning
        self._earlier = earlier_points(directory / JOURNAL)

    @property
    def name(self) -> str:
        """The tracked name, without the time that trackers append to that of a cell."""
        tracked, cell = str(self._run["tracking"]["name"]), self.directory.name
        return cell if tracked.startswith(f"{cell}_") else tracked

    @property
    def run_id(self) -> str:
        return str(self._run["run_id"])

    @property
    def pid(self) -> int:
        """The training process, on its host."""
        return int(self._attempt["pid"])

    @property
    def status(self) -> str:
        """`running`, how it ended, or `died` if it is gone without a word."""
        if self.rank.status is not None:
            return self.rank.status
        if self._attempt["host"] != host_name():
            return f"running on {self._attempt['host']}, as far as its journal says"
        return "running" if is_alive(self._attempt) else "died"

    def look(self) -> None:
        """Take in the new records."""
        attempt = self.rank.attempt
        for record in self._journal.new():
            if int(str(record.get("seq") or 0)) > self.rank.last_seq:
                self._take(record)
        if self._earlier and self.points:  # before what is read entirely
            self.points[:0] = rising(self._earlier, before=self.points[0])
            self._earlier = []
        for alert in self._alerts.new():
            self._take_alert(alert)
        if self.rank.attempt != attempt:
            self._run = read_run_json(self.directory)

    def reset(self) -> None:
        """Forget the points of the graphs."""
        self.points.clear()
        self._every = 1

    def training_lines(self) -> list[Record]:
        """Return the points as lines of training_metrics_*.jsonl; what a journal does not hold is null."""
        per_epoch = self.rank.steps_per_epoch
        return [
            {
                "timestamp": timestamp(point.time),
                "step": point.step,
                "epoch": point.step / per_epoch if per_epoch else None,
                "loss": point.loss,
                "learning_rate": point.lr,
                "gradient_norm": point.grad_norm,
                "throughput_samples_per_sec": point.samples_per_sec,
                "memory_allocated_mb": _mib(point.allocated_gb),
                "memory_reserved_mb": _mib(point.reserved_gb),
                "correlation_id": self.run_id,
            }
            for point in self.points
        ]

    def seconds_left(self, now: float) -> float | None:
        """Seconds left by the pace of the newest steps; None while that is unknown, or it does not run."""
        left, since = self.rank.seconds_left, self.rank.last_step_time
        if left is None or since is None or not self.status.startswith("running"):
            return None
        # counted on from the last step, so that it goes down between records too
        return max(0.0, left - max(0.0, now - since))

    @property
    def _attempt(self) -> Mapping[str, Any]:
        attempts: list[Mapping[str, Any]] = self._run["attempts"]
        return attempts[-1]

    def _take(self, record: Record) -> None:
        gone = self.rank.update(record)
        if gone:
            self.points = [point for point in self.points if point.seq not in gone]
        if record.get("event") == "step" and self.rank.step is not None:
            self._num_steps += 1
            if self._num_steps % self._every == 0:
                self.points.append(_point(record, self.rank.step))
            if len(self.points) > MOST_POINTS:
                self.points = self.points[1::2]
                # half of the points went: the next ones come at the same distance as those that stay
                self._every *= 2

    def _take_alert(self, alert: Record) -> None:
        """An alert fires until its subject is well again, which a later one says."""
        rule, subject = str(alert.get("rule")), str(alert.get("subject") or "")
        self._firing.pop((rule, subject), None)
        if rule == "gpu_back":  # without a subject it is all GPUs
            for failed in [key for key in self._firing if key[0] in GPU_FAILURES]:
                if subject in ("", failed[1]):
                    del self._firing[failed]
        elif alert.get("state") != "resolved" and alert.get("severity") != "info":
            self._firing[rule, subject] = str(alert.get("condition") or alert.get("message"))
        self.alert = list(self._firing.values())[-1] if self._firing else None


def earlier_points(journal: Path) -> list[Point]:
    """Steps at even distances in the part of a long journal that is not read: a look takes milliseconds."""
    points = []
    try:
        with journal.open("rb") as file:
            length = os.fstat(file.fileno()).st_size - LAST_BYTES
            for offset in range(0, length, max(STRETCH, length // EARLIER)):
                file.seek(offset)
                lines = file.read(STRETCH).split(b"\n")[0 if offset == 0 else 1 : -1]
                records = (record for record in map(parse, lines) if record is not None)
                found = next((record for record in records if record.get("event") == "step"), None)
                step = whole_step(found.get("global_step")) if found is not None else None
                if found is not None and step is not None:
                    points.append(_point(found, step))
    except FileNotFoundError:
        pass
    return points


def rising(points: Sequence[Point], before: Point) -> list[Point]:
    """Return points that no later one does again, as after a resume; exact to within their distance."""
    kept: list[Point] = []
    least, seq = before.step, before.seq
    for point in reversed(points):
        if point.step < least and point.seq < seq:
            kept.append(point)
            least, seq = point.step, point.seq
    return kept[::-1]


def _point(record: Record, step: int) -> Point:
    values = [as_number(record.get(name)) for name in POINT_FIELDS]
    seq, time = as_number(record.get("seq")), as_number(record.get("time"))
    return Point(int(seq or 0), time or 0.0, step, *values)


def journals(directory: Path) -> dict[Path, float]:
    """Return the run in a directory, or the runs of a matrix there -> when each wrote its journal last."""
    if (directory / RUN_JSON).exists():
        return {directory: _modified(directory / JOURNAL)}
    found = [*directory.glob(f"*/{RUN_JSON}"), *directory.glob(f"*/*/{RUN_JSON}")]
    return {path.parent: _modified(path.parent / JOURNAL) for path in found}


def open_run(directory: Path) -> RunView | None:
    """Return the run of a run directory, None as long as it cannot be read."""
    try:
        return RunView(directory)
    except MonitoringError:
        return None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _mib(gigabytes: float | None) -> float | None:
    return None if gigabytes is None else gigabytes * 1e9 / MIB
