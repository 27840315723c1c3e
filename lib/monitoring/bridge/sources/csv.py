"""CSV files: Lightning's `metrics.csv`, and those that the user names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from monitoring.bridge.source import CUT_OFF, Lines, Reported, Watched, files_below
from monitoring.journal.files import METRICS_CSV

# The default folder of Lightning's CSVLogger, which rewrites its file whenever a column is new.
FOLDER = "lightning_logs"

RICHNESS = 40


def find(watched: Watched) -> Iterator[CsvSource]:
    """Yield the files that the user named, and those of Lightning that are new."""
    for path in watched.named(".csv"):
        yield CsvSource(path)
    usual = files_below(watched.cwd / FOLDER, METRICS_CSV)
    for path in dict.fromkeys([*usual, *watched.in_directory(METRICS_CSV)]):
        if path.name == METRICS_CSV and watched.is_new(path) and not watched.is_of_another(path):
            yield CsvSource(path)


class CsvSource(Lines):
    """A file with a header; the place is a count of rows, for writers begin it anew with more columns."""

    kind = "csv"
    _seen: tuple[int, int] | None = None

    def place_at(self, size: int) -> int:
        """Return the count of rows in the first `size` bytes."""
        import csv  # no program waits for it

        with self.path.open("rb") as file:
            lines = file.read(size).decode("utf-8", "replace").splitlines(keepends=True)
        return sum(1 for _ in csv.DictReader(lines))

    def read(self, place: int) -> Iterator[Reported]:
        """Yield the rows after the first `place`; a last line without its end is left for later."""
        status = self.path.stat()
        if (now := (status.st_size, status.st_mtime_ns)) == self._seen:
            return
        number = 0
        for number, row in enumerate(self._rows(), 1):
            if number > place:
                yield _reported(row, number)
        if number < place:  # begun anew, by a program that keeps no rows
            for number, row in enumerate(self._rows(), 1):
                yield _reported(row, number)
        self._seen = now

    def cut_off(self, place: int) -> str:
        """Say that the last line has no end; empty for a whole one."""
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read() in (b"", b"\n"):
                return ""
        return "has a last line without an end: its last number may lack digits" if self.is_whole else CUT_OFF

    def _rows(self) -> Iterator[dict[str, str]]:
        import csv  # as above

        with self.path.open(newline="", encoding="utf-8", errors="replace") as file:
            lines = (line for line in file if self.is_whole or line.endswith("\n"))
            yield from csv.DictReader(lines)


def _reported(row: Mapping[str, str], number: int) -> Reported:
    from monitoring.bridge.flat import reported  # as above

    # cells beyond the header have no name; empty ones were not reported
    return reported({name: _value(text) for name, text in row.items() if name and text}, number)


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
