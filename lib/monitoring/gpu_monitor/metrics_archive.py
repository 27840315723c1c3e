"""Compresses the full files of one log of metrics, at low priority, and ends.

    python -P -m monitoring.gpu_monitor.metrics_archive PATH FILE_BYTES KEEP

A MetricsLog starts it. A kill leaves each file complete, and the next one to start does the rest.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from monitoring.gpu_monitor.metrics_log import full_files
from monitoring.journal.encoding.archive import archives
from monitoring.journal.encoding.archiver import Archiver
from monitoring.journal.records import Record

# It gives way to everything else.
NICENESS = 19


class MetricsFiles:
    """The files of one start of a monitor."""

    where = "file_mb times files are full"

    def oldest(self, path: Path) -> tuple[BinaryIO, int, int] | None:
        """Return the oldest full file, as FullFiles has it; a file that has an archive is removed first."""
        done = {archive.first for archive in archives(path)}
        for first, other in full_files(path):
            if first in done:
                other.unlink(missing_ok=True)
                continue
            with contextlib.suppress(FileNotFoundError):  # the monitor had to remove it
                return other.open("rb"), first, int(other.name.rpartition("-")[2])
        return None

    def series(self, record: Record) -> object:
        """Return the GPU: lines of several are interleaved."""
        return record.get("gpu_index")

    def distinct(self, record: Record) -> object:
        """Return what thinning keeps: each message, state of a GPU and number that was not finite."""
        return [record.get(name) for name in ("message", "state", "nonfinite", "refused_step")]


def main(argv: Sequence[str]) -> int:
    """Compress all that is full; 0 then, and what is in the way is on stderr, with its traceback."""
    path, file_bytes, keep = argv
    with contextlib.suppress(OSError):  # not allowed here
        os.nice(NICENESS)
    compress_full(Path(path), file_bytes=int(file_bytes), keep=int(keep))
    return 0


def compress_full(path: Path, *, file_bytes: int, keep: int) -> None:
    """Compress the files of a log that are full, and thin the oldest, until `keep` are left."""
    archiver = Archiver(
        path,
        MetricsFiles(),
        file_bytes=file_bytes,
        keep=keep,
        tell=lambda severity, message: None,  # nobody is there to read it; docs/gpu-monitor.md has it
    )
    archiver.work(threading.Event())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
