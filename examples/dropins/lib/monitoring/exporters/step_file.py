"""A file that holds the newest step, for a status bar."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monitoring.follower import LiveFollower, RunInfo
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import Record

LIVE = True


@dataclass(frozen=True)
class Options:
    """Where the step is shown."""

    name: str


def open_follower(run: RunInfo, options: Options) -> LiveFollower:
    """The file in the run directory."""
    return StepFile(run.directory / options.name)


class StepFile:
    """Renewed with each delivery, gone after the run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def last_seq(self, journal: str = JOURNAL) -> int:
        return 0

    def deliver(self, records: Sequence[Record]) -> None:
        steps = [record["global_step"] for record in records if "global_step" in record]
        if steps:
            write_atomically(self._path, f"{steps[-1]}\n".encode())

    def flush(self) -> None: ...

    def linger(self, stop: threading.Event) -> None: ...

    def close(self, status: str | None) -> None:
        self._path.unlink(missing_ok=True)
