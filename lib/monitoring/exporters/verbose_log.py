"""verbose_training_logs.jsonl of a run: its journal as a verbose log, at no cost for the training.

It has the entries of a VerboseLoggingCallback (docs/verbose-logging.md) as far as the journal has their
events, with the resources that the agent samples. Each says by `seq` which record it is made of; a warning
says by `gpu_seq` or `system_seq` which sample.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitoring.follower import RunInfo
from monitoring.host.name import host_name
from monitoring.host.process import is_alive
from monitoring.journal.files import GPU_STATS, JOURNAL, SYSTEM_STATS
from monitoring.journal.records import ENVELOPE, Record, as_number, parse, seq_of
from monitoring.journal.run_json import read_run_json
from monitoring.journal.run_state import read_end
from monitoring.verbose_logging.entries import Entries
from monitoring.verbose_logging.levels import verbosity
from monitoring.verbose_logging.log_file import LOG_FILE, ErrorLog, LogFile, full_files
from monitoring.verbose_logging.resources import gpu_device, machine_info, usage_of

JOURNALS = (JOURNAL, GPU_STATS, SYSTEM_STATS)

# Journal -> the name that an entry gives the number of the record that it is made of.
SEQ_NAMES = {JOURNAL: "seq", GPU_STATS: "gpu_seq", SYSTEM_STATS: "system_seq"}

# Entries of many records that one write takes.
ENTRIES_A_WRITE = 100

# Field of a record -> its name in the document, where that is another.
NAMES = {"train_loss": "loss", "lr": "learning_rate"}


@dataclass(frozen=True)
class Options:
    """How much of a training the log holds."""

    level: str

    def __post_init__(self) -> None:
        verbosity(self.level)


def open_follower(run: RunInfo, options: Options) -> VerboseLogFile:
    """Return the run's verbose log, made if it is not there; OSError if it cannot be written."""
    attempt = read_run_json(run.directory)["attempts"][-1]
    is_here = attempt["host"] == host_name() and is_alive(attempt)
    return VerboseLogFile(run.directory, options.level, is_here=is_here)


class VerboseLogFile:
    """A log to which the entries of records are appended."""

    def __init__(self, directory: Path, level: str, *, is_here: bool = False) -> None:
        """`is_here` says that the run trains now, on this machine: then its state is the training's."""
        self._level = verbosity(level)
        self._folder = directory if is_here else None
        path = directory / LOG_FILE
        self._log = LogFile(path, ErrorLog(directory, 0))
        self._last = _last_seqs(path)
        self._entries = Entries(self._level)
        self._devices: list[Record] = []
        self._machine: Record = {}
        self._steps_per_epoch: float | None = None
        self._num_steps: int | None = None
        if self._last[JOURNAL]:  # what is known of the training that goes on
            self._start(read_end(directory / JOURNAL).start)

    def last_seq(self, journal: str = JOURNAL) -> int:
        """Return the highest number in the entries; samples without a warning leave none."""
        return self._last[journal]

    def deliver(self, records: Sequence[Record]) -> None:
        """Append the entries of records; OSError in `flush` if the disk does not take them."""
        entries: list[Record] = []
        for record in records:
            event, seq = str(record["event"]), seq_of(record)
            journal = {"gpu": GPU_STATS, "system": SYSTEM_STATS}.get(event, JOURNAL)
            made = self._made(event, record)
            entries += [{**entry, SEQ_NAMES[journal]: seq} for entry in made]
            # a sample without an entry leaves no number in the log, and may be read again
            if made or journal == JOURNAL:
                self._last[journal] = seq
            if len(entries) >= ENTRIES_A_WRITE:
                self._log.append(entries)
                entries = []
        self._log.append(entries)

    def flush(self) -> None:
        """Raise OSError if something still waits for the disk."""
        self._log.check()

    def close(self, status: str | None) -> None:
        self._log.close()

    def _made(self, event: str, record: dict[str, Any]) -> list[Record]:
        time, step = float(record["time"]), int(record.get("global_step") or 0)
        made, epoch = self._entries, self._epoch(step)
        if event in ("gpu", "system"):
            return self._sampled(event, record, time)
        if event == "start":
            return self._start(record)
        if event == "step":
            metrics = _metrics(record)
            found = made.step_end(time, step, epoch, as_number(record.get("sec_per_step")), metrics=metrics)
            return found + made.log(time, step, epoch, metrics)
        if event == "eval":
            metrics = _metrics(record)
            found = made.log(time, step, epoch, metrics)
            return found + made.evaluated(time, step, metrics, is_known_to_begin=False)
        if event == "epoch":
            number = as_number(record.get("epoch"))
            found = made.epoch_end(time, step, number, _metrics(record))
            return found + ([] if step == self._num_steps else made.epoch_begin(time, step, number))
        if event == "checkpoint":
            return made.saved(time, step, _of(record, "checkpoint_path", "best", "reason"))
        if event == "end":
            about = {"status": record.get("status"), "final_metrics": _metrics(record)}
            return made.train_end(time, int(record.get("steps_done") or made.last_step), about)
        return []

    def _start(self, record: dict[str, Any]) -> list[Record]:
        if not record:
            return []
        time, resumed = float(record["time"]), record.get("resumed_from") or {}
        self._steps_per_epoch = as_number(record.get("steps_per_epoch"))
        self._num_steps = record.get("num_steps")
        step = int(resumed.get("global_step") or 0)
        machine = {name: record.get(name) for name in ("hardware", "versions", "git")}
        facts = _of(record, "num_epochs", "steps_per_epoch", "batch_size", "dataset", "resumed_from")
        about = _of(record, "model", "optimizer", "schedule", "device")
        samples = as_number(record.get("batch_size"))
        found = self._entries.system(
            time, {**machine, **machine_info(self._folder)}
        ) + self._entries.initialized(time, about)
        found += self._entries.train_begin(time, step, self._num_steps, samples, facts)
        return found + self._entries.epoch_begin(time, step, self._epoch(step) or 0.0)

    def _sampled(self, event: str, record: dict[str, Any], time: float) -> list[Record]:
        if not self._level.has_usage:
            return []
        complete = self._level.has_complete_state
        if event == "gpu":
            gpus = record.get("multi_gpu_data") or ()
            self._devices = [gpu_device(gpu, complete=complete) for gpu in gpus]
        else:
            self._machine = record
        usage = usage_of(self._machine, self._devices, time, complete=complete)
        return self._entries.usage(time, usage)

    def _epoch(self, step: int) -> float | None:
        return step / self._steps_per_epoch if self._steps_per_epoch else None


def _metrics(record: Mapping[str, object]) -> Record:
    """Return a record's measurements, under the document's names."""
    return {
        NAMES.get(name, name): value
        for name, value in record.items()
        if name not in ENVELOPE and (value is None or isinstance(value, int | float))
    }


def _of(record: Mapping[str, object], *names: str) -> Record:
    return {name: record[name] for name in names if name in record}


def _last_seqs(path: Path) -> dict[str, int]:
    """Return the highest number of each journal in the newest file that has any."""
    found = dict.fromkeys(SEQ_NAMES, 0)
    for lines in _newest_first(path):
        for entry in map(parse, lines):
            for journal, name in SEQ_NAMES.items():
                seq = (entry or {}).get(name)
                found[journal] = max(found[journal], seq if isinstance(seq, int) else 0)
        if found[JOURNAL]:
            break
    return found


def _newest_first(path: Path) -> Iterator[list[bytes]]:
    yield path.read_bytes().splitlines()
    for full in full_files(path):
        yield gzip.decompress(full.read_bytes()).splitlines()
