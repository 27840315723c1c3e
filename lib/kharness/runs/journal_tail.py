"""A journal that is being written, followed as far as the display and the verdict on a run need it."""

from __future__ import annotations

import os
from pathlib import Path

from monitoring.journal.files import JOURNAL
from monitoring.journal.records import last_line, read_records
from monitoring.journal.run_state import RunState


class JournalTail(RunState):
    """State of a run from its records so far; each `read` takes only new ones."""

    def __init__(self, directory: Path, *, since: int = 0) -> None:
        """`since` is a byte offset: what stands before it is of attempts that do not matter here."""
        super().__init__()
        self._path = directory / JOURNAL
        self._offset = since

    def read(self) -> None:
        for record, offset in read_records(self._path, self._offset):
            self._offset = offset
            self.update(record)


def end_offset(directory: Path) -> int:
    """The offset of the end of the last complete record: what a new attempt writes begins there."""
    try:
        fd = os.open(directory / JOURNAL, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        return last_line(fd)[1]
    finally:
        os.close(fd)
