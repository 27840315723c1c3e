"""A run as the dashboard shows it: the numbers of its last steps and when it will be done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from monitoring.errors import MonitoringError
from monitoring.gpu_monitor.lines import training_line
from monitoring.host.name import host_name
from monitoring.journal.alerts import Episode, take_alert
from monitoring.journal.files import ALERTS, JOURNAL, RUN_JSON
from monitoring.journal.records import Record, as_number, read_records, seq_of
from monitoring.journal.run_json import read_run_json
from monitoring.journal.run_metrics import RankMetrics
from monitoring.journal.run_state import RUNNING, status_of
from monitoring.journal.series import RunSeries, Window
from monitoring.journal.tail import RecordTail

# How much of a long journal the state is taken from: some thousand step records.
LAST_BYTES = 2**20

# Seconds that a look may read for the graphs: those of a long run are coarse first.
LOOK_SECONDS = 0.02

# Places of a graph, each with the extremes of its records: more than a terminal has columns.
BUCKETS = 1000

# Seconds between two looks for runs that began later, as in a matrix.
LOOK_AGAIN = 2.0

# A look takes milliseconds in a matrix of a thousand cells; this share of the time goes into looks at most.
SHARE = 0.005

SPEED = "samples_per_sec"
"""Throughput, which trainings of ours and the callbacks record."""

# Runs whose journals were written within so many seconds of the newest one train at the same time.
LATELY = 60.0


class RunView:
    """One run directory; `look` takes in what is new. It only reads."""

    def __init__(self, directory: Path) -> None:
        """RunDirectoryError if there is no run."""
        self.directory = directory
        self.rank = RankMetrics()
        """The state and metrics of rank 0."""
        self.alert: str | None = None
        """The text of the newest alert that fires; None if none does."""
        self.num_firing = 0
        self._firing: dict[Episode, Record] = {}
        self._run = read_run_json(directory)
        self._journal = RecordTail(directory / JOURNAL, last_bytes=LAST_BYTES)
        self._alerts = RecordTail(directory / ALERTS)
        for record, _ in islice(read_records(directory / JOURNAL), 1):
            self.rank.update(record)  # the length of the training is at the journal's beginning
        self._series = RunSeries(directory, only=(JOURNAL,))
        self._first: float | None = None  # the first step of the graphs, unless that is the run's

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
        """`running`, how it ended, `killed` if it is gone without a word; `silent` on another host."""
        found, host = status_of(self.rank, self._attempt, time.time()), self._attempt["host"]
        if found == RUNNING and host != host_name():
            return f"{found} on {host}, as far as its journal says"
        return found

    def look(self) -> None:
        """Take in the new records."""
        attempt = self.rank.attempt
        for record in self._journal.new():
            if seq_of(record) > self.rank.last_seq:
                self.rank.update(record)
        with contextlib.suppress(OSError):  # a disk that fails: what was read is shown
            self._series.refresh(LOOK_SECONDS)
        for alert in self._alerts.new():
            take_alert(self._firing, alert)
        texts = [str(alert.get("condition") or alert.get("message")) for alert in self._firing.values()]
        self.alert, self.num_firing = texts[-1] if texts else None, len(texts)
        if self.rank.attempt != attempt:
            self._run = read_run_json(self.directory)

    def window(self, metric: str) -> Window:
        """Return what the graphs show of a metric of steps; nothing where none has it."""
        try:
            return self._series.window(metric, lo=self._first, buckets=BUCKETS)
        except KeyError:
            return Window()

    def metrics(self) -> list[str]:
        """Return what the second graph can show: every metric that the run has recorded but the loss."""
        return [name for name in self._series.metrics if name != "train_loss"]

    def usual_metric(self) -> str:
        """Return the second graph of a person who chose none: throughput, else a validation, a norm."""
        names = self.metrics()
        validations = [name for name in names if name.startswith("val_")]
        usual = [SPEED, "val_loss", *validations, "grad_norm", "lr"]
        return next((name for name in usual if name in names), SPEED)

    def reset(self) -> None:
        """Begin the graphs anew at the next step."""
        self._first = (self.rank.step or 0) + 1

    def training_lines(self) -> list[Record]:
        """Return the newest steps as lines of training_metrics_*.jsonl; what the journal lacks is null."""
        per_epoch = self.rank.steps_per_epoch
        lines = []
        for record in self._series.newest():
            step = int(as_number(record["global_step"]) or 0)
            if step >= (self._first or 0):
                line = training_line({**record, "global_step": step}, step / per_epoch if per_epoch else None)
                lines.append({**line, "correlation_id": self.run_id})
        return lines

    def seconds_left(self, now: float) -> float | None:
        """Seconds left by the pace of the newest steps; None while that is unknown, or it does not run."""
        left, since = self.rank.seconds_left, self.rank.last_step_time
        if left is None or since is None or not self.status.startswith(RUNNING):
            return None
        # counted on from the last step, so that it goes down between records too
        return max(0.0, left - max(0.0, now - since))

    @property
    def _attempt(self) -> Mapping[str, Any]:
        attempts: list[Mapping[str, Any]] = self._run["attempts"]
        return attempts[-1]


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


class RunWatch:
    """The run in a directory that wrote its journal last, until it ends; `turn` goes to the others."""

    def __init__(self, directory: Path) -> None:
        self.view: RunView | None = None
        """The watched run; None while there is none that can be read."""
        self.beside: list[Path] = []
        """The runs that wrote lately, by name, the watched one among them as long as it does."""
        self._directory = directory
        self._next_look = 0.0

    def look(self) -> None:
        """Take in what is new, of the watched run and of other runs."""
        began = time.monotonic()
        if began >= self._next_look:
            self._choose()
            now = time.monotonic()
            self._next_look = now + max(LOOK_AGAIN, (now - began) / SHARE)
        if self.view is not None:
            self.view.look()

    def turn(self, by: int) -> None:
        """Watch the run before or after this one."""
        if self.view is not None and self.beside:
            place = self.beside.index(self.view.directory) if self.view.directory in self.beside else -by
            self._open(self.beside[(place + by) % len(self.beside)])

    def place(self) -> tuple[int, int] | None:
        """The watched run's place among those that train, from 1, and their number; None if it is alone."""
        if self.view is None or len(self.beside) < 2 or self.view.directory not in self.beside:
            return None
        return self.beside.index(self.view.directory) + 1, len(self.beside)

    def _choose(self) -> None:
        written = journals(self._directory.resolve())  # a link may lead to a newer one by now
        if not written:
            return
        newest = max(written, key=lambda run: (written[run], run))
        self.beside = sorted(run for run in written if written[run] >= written[newest] - LATELY)
        if self.view is None or (self.view.directory != newest and not self._trains(self.view)):
            self._open(newest)

    def _trains(self, view: RunView) -> bool:
        # of a run on another machine only its journal says
        there = view.status.startswith(RUNNING) and view.directory in self.beside
        return there or view.status == RUNNING

    def _open(self, directory: Path) -> None:
        if self.view is None or self.view.directory != directory:
            self.view = open_run(directory) or self.view
            if self.view is not None:
                self.view.look()
