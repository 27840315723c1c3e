"""How files of samples are compressed and thinned."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import oldest_unarchived


class SampleFiles:
    """The files of samples that an agent writes; RotatingJournal removes those with an archive."""

    where: str
    """What is full when samples are thinned."""

    def oldest(self, path: Path) -> tuple[BinaryIO, int, int] | None:
        return oldest_unarchived(path)

    def series(self, record: Record) -> object:
        """One alone: each record has all GPUs, or the machine."""
        return None

    def distinct(self, record: Record) -> object:
        """What begins an attempt stays."""
        return record["attempt"], record["event"]
