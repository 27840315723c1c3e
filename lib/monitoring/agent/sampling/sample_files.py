"""Rules by which files of samples are compressed and thinned."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import oldest_unarchived


class SampleFiles:
    """The files of samples that an agent writes; RotatingJournal removes those with an archive."""

    where: str
    """The limit that is reached when samples are thinned, as a clause of an alert."""

    def oldest(self, path: Path) -> tuple[BinaryIO, int, int] | None:
        return oldest_unarchived(path)

    def series(self, record: Record) -> object:
        """Return None: the records are one series, each with all GPUs, or the machine."""
        return None

    def distinct(self, record: Record) -> object:
        """Return attempt and event, so that a thinned record never spans two attempts."""
        return record["attempt"], record["event"]
