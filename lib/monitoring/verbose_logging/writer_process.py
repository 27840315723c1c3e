"""Writes the verbose log of a training that runs in another process.

    python -P -m monitoring.verbose_logging.writer_process LEVEL LOG_FILE RANK PID FILE_BYTES

Standard input is a pipe of events, a JSON array per line (see channel); on standard output each `sync` is
answered. Everything that takes time is done here, at low priority: the training's process only writes into
the pipe. What it had written when it was killed is in the log all the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from monitoring.journal.records import Record
from monitoring.verbose_logging.entries import Entries
from monitoring.verbose_logging.levels import Verbosity, verbosity
from monitoring.verbose_logging.log_file import STANDARD_LOG, ErrorLog, open_log, rank_path
from monitoring.verbose_logging.resources import ResourceReader, gpu_device, iso_time, system_info

if TYPE_CHECKING:
    from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample
    from monitoring.sampler_process.process import Restart

# Seconds between looks at the pipe: a reader that waits is woken by each write, which the writer pays.
LOOK_EVERY = 0.05

# Seconds between samples of the machine and its GPUs.
SAMPLE_EVERY = 1.0

# Seconds after which the entry of a step is written without its metrics, which come by themselves.
METRICS_WITHIN = 10.0

NICENESS = 5


class EventWriter:
    """Makes entries of events and writes them; one thread calls it."""

    def __init__(self, level: Verbosity, path: Path, *, rank: int, pid: int, file_bytes: int) -> None:
        self._level = level
        self._errors = ErrorLog(path.parent, rank)
        self._log = open_log(rank_path(path, rank), self._errors, file_bytes=file_bytes)
        self._standard = None
        if path.name != STANDARD_LOG:
            standard = rank_path(path.with_name(STANDARD_LOG), rank)
            self._standard = open_log(standard, self._errors, file_bytes=file_bytes)
        self._entries = Entries(level)
        self._folder = path.parent
        self._reader = ResourceReader(pid, path.parent, complete=level.has_complete_state)
        self._gpus = _Gpus(self._errors, complete=level.has_complete_state)
        self._waiting_step: list[Any] = []
        self._waiting_since = 0.0
        self._final_metrics: Record = {}
        self._is_training = False
        self._next_sample = 0.0

    def take_line(self, line: bytes) -> None:
        """Take one event; what is wrong with it is in the log of errors."""
        try:
            kind, *facts = orjson.loads(line)
            if kind == "log":
                self._take_log(*facts)
                return
            self._write_waiting()
            if kind == "sync":
                os.write(sys.stdout.fileno(), b"%d\n" % facts[1])
            elif kind == "entry":
                self._log.append([facts[1]])
            elif kind == "lost":
                self._errors.add(f"{facts[1]} events were lost: the log could not be written fast enough")
            else:
                self._take(kind, facts)
        except Exception as error:  # noqa: BLE001 - an event may hold anything; the log goes on
            self._errors.add(f"event {line[:100]!r}", error)

    def look(self, now: float) -> None:
        """Do what is due by itself: sample the machine, write a step whose metrics do not come."""
        if self._waiting_step and now - self._waiting_since > METRICS_WITHIN:
            self._write_waiting()
        if self._is_training and self._level.has_usage and now >= self._next_sample:
            self._next_sample = now + SAMPLE_EVERY
            usage = self._reader.read(self._gpus.devices)
            self._log.append(self._entries.usage(time.time(), usage))

    def close(self) -> None:
        """Write all pending entries."""
        self._write_waiting()
        self._gpus.stop()
        self._log.close()
        if self._standard is not None:
            self._standard.close()

    def _take(self, kind: str, facts: list[Any]) -> None:
        if kind == "step_end":
            self._waiting_step, self._waiting_since = facts, time.monotonic()
            return
        if kind == "system":
            facts = [*facts, system_info(self._folder)]
        elif kind == "train_begin" and self._level.has_usage:
            self._is_training = True
            self._gpus.start()
            self.look(time.monotonic())
        elif kind == "train_end":
            self._is_training = False
            facts = [*facts, {"final_metrics": self._final_metrics}]
        self._log.append(getattr(self._entries, kind)(*facts))
        if kind == "train_end":
            self._gpus.stop()

    def _take_log(self, time: float, step: int, epoch: float | None, logs: Record, nonfinite: Any) -> None:
        """Take a log of the trainer, which has the metrics of the step before it if that has its number."""
        self._final_metrics |= logs
        if nonfinite:
            logs["nonfinite"] = nonfinite
        is_of_step = bool(self._waiting_step) and self._waiting_step[1] == step and "loss" in logs
        self._write_waiting(logs if is_of_step else None)
        if self._standard is not None:
            self._standard.append([{"timestamp": iso_time(time), "step": step, "epoch": epoch, **logs}])
        self._log.append(self._entries.log(time, step, epoch, logs))

    def _write_waiting(self, metrics: Record | None = None) -> None:
        facts, self._waiting_step = self._waiting_step, []
        if facts:
            self._log.append(self._entries.step_end(*facts, metrics=metrics or {}))


class _Gpus:
    """The newest samples of the GPUs, by a thread and a process of their own, which a driver may hang."""

    def __init__(self, errors: ErrorLog, *, complete: bool) -> None:
        self.devices: list[Record] = []
        self._errors = errors
        self._complete = complete
        self._ending: threading.Event | None = None

    def start(self) -> None:
        if self._ending is None:
            from monitoring.sampler_process.loop import SamplingLoop

            self._ending = threading.Event()
            loop = SamplingLoop(self, SAMPLE_EVERY, self._ending)
            threading.Thread(target=loop.run, name="gpu sampling", daemon=True).start()

    def stop(self) -> None:
        if self._ending is not None:
            self._ending.set()
            self._ending = None

    def found(self, devices: Sequence[DeviceInfo] | None, problems: Sequence[str]) -> None:
        for problem in problems:
            self._errors.add("some GPUs are not sampled", problem)

    def take(self, samples: Sequence[GpuSample], events: Sequence[GpuEvent]) -> None:
        self.devices = [gpu_device(sample._asdict(), complete=self._complete) for sample in samples]

    def failed(self, restart: Restart) -> None:
        self.devices = []
        self._errors.add(restart.message)


def main(argv: Sequence[str]) -> int:
    """Write entries; 0 when the training's process has closed the pipe, or is gone."""
    level, path, rank, pid, file_bytes = argv
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # not allowed here
        os.nice(NICENESS)
    writer = EventWriter(
        verbosity(level), Path(path), rank=int(rank), pid=int(pid), file_bytes=int(file_bytes)
    )
    pipe, rest = sys.stdin.fileno(), b""
    os.set_blocking(pipe, False)
    while True:
        is_orphan = os.getppid() != int(pid)
        try:
            chunk = os.read(pipe, 2**16)
        except BlockingIOError:
            writer.look(time.monotonic())
            if is_orphan:  # a fork of the training's process holds the pipe
                break
            time.sleep(LOOK_EVERY)
            continue
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            writer.take_line(line)
        writer.look(time.monotonic())
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
