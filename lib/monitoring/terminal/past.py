"""A run's samples from before the dashboard was started, read in the background.

A long run has millions of samples in compressed archives: of these so many are taken as graphs can show, at
even distances, and the newest files are read entirely.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from monitoring.gpu.sample import GpuSample
from monitoring.host.name import host_name
from monitoring.journal.encoding.archive import FullFile
from monitoring.journal.records import Record, as_number, last_record, parse
from monitoring.journal.rotating_journal import open_all
from monitoring.terminal.timeline import Timeline

# Samples that are taken of the archives, times their GPUs.
MOST_SAMPLES = 60_000


class Past:
    """The samples of a run on a host before a time, oldest first, as far as they are read."""

    def __init__(
        self, journal: Path, before: float, *, uuids: Mapping[int, str | None] | None = None
    ) -> None:
        """`journal` is that of a host.

        `uuids`, if given, are the GPUs of this machine: samples of others are left out.
        """
        self.timeline = Timeline()
        """Read it while holding `lock`."""
        self.lock = threading.Lock()
        self.is_complete = False
        self._path = journal
        self._before = before
        self._uuids = uuids
        self._closed = threading.Event()
        self._seq = 0
        self._thread = threading.Thread(target=self._read, name="the run's past", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the reading."""
        self._closed.set()
        self._thread.join()

    def _read(self) -> None:
        # removed, or on a disk that fails: what was read is shown
        with contextlib.suppress(OSError, EOFError):
            newest = last_record(self._path)
            for file, archive in open_all(self._path):
                if self._closed.is_set() or not self._take(file, archive, newest or {}):
                    break
        self.is_complete = True

    def _take(self, file: BinaryIO, archive: FullFile | None, newest: Record) -> bool:
        """Take a file's samples; False at the first one that is not of the past."""
        every = 1
        for number, line in enumerate(file):
            if number % every:
                continue
            record = parse(line)
            if self._closed.is_set() or record is None:
                continue
            if archive is not None and number == 0:
                every = _stride(newest, record)
            if not self._add(record):
                return False
        return True

    def _add(self, record: Record) -> bool:
        time, seq = as_number(record.get("time")), as_number(record.get("seq"))
        if record.get("event") != "gpu" or time is None or seq is None or seq <= self._seq:
            return True
        # from here on the dashboard has samples of its own
        if time >= self._before:
            return False
        self._seq = int(seq)
        samples = samples_of(record)
        if self._uuids is not None:
            here = record.get("host") == host_name()
            samples = [it for it in samples if here and self._uuids.get(it.index) == it.uuid]
        with self.lock:
            self.timeline.add(time, samples)
        return True


def samples_of(record: Record) -> list[GpuSample]:
    """Return the samples of a gpu record; fields that this version does not know are left out."""
    gpus: Sequence[Mapping[str, object]] = record["multi_gpu_data"]  # type: ignore[assignment]
    return [GpuSample(**{key: gpu.get(key) for key in GpuSample._fields}) for gpu in gpus]  # type: ignore[arg-type]


def _stride(newest: Record, first: Record) -> int:
    """Return how many lines of an archive one stands for, by the run's length, its GPUs, and its thinning."""
    total = as_number(newest.get("seq")) or 0.0
    gpus = first.get("multi_gpu_data")
    num_gpus = len(gpus) if isinstance(gpus, list) else 1
    thinned = as_number(first.get("thinned")) or 1.0
    return max(1, int(total * num_gpus / MOST_SAMPLES / thinned))
