"""CSV files: Lightning's `metrics.csv`, and those that the user names."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from monitoring.bridge.source import CUT_OFF, Lines, Reported, Watched, files_below
from monitoring.journal.files import METRICS_CSV

# The default folder of Lightning's CSVLogger, which rewrites its file whenever a column is new.
FOLDER = "lightning_logs"

RICHNESS = 40

# The first that a header has parts its columns: a spreadsheet of a country with decimal commas writes `;`.
DELIMITERS = (",", ";", "\t")


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

    def __init__(self, path: Path, *, is_whole: bool = False) -> None:
        super().__init__(path, is_whole=is_whole)
        self._numeric: set[str] = set()
        """Columns in which there are numbers."""
        self._texts: dict[str, tuple[int, str]] = {}
        """Columns in which there is something else -> the first line that has it, and what."""

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
                yield self._reported(row, number)
        if number < place:  # begun anew, by a program that keeps no rows
            for number, row in enumerate(self._rows(), 1):
                yield self._reported(row, number)
        self._seen = now
        self.left_out = self._said_of_text()

    def cut_off(self, place: int) -> str:
        """Say that the last line has no end; empty for a whole one."""
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read() in (b"", b"\n"):
                return ""
        return "has a last line without an end: its last number may lack digits" if self.is_whole else CUT_OFF

    def _rows(self) -> Iterator[dict[str, str]]:
        """Yield the rows; ValueError for what is no CSV."""
        import csv  # as above

        # spreadsheets begin a file with a mark of its encoding
        with self.path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            lines = (line for line in file if self.is_whole or line.endswith("\n"))
            header = next(lines, "")
            delimiter = next((sign for sign in DELIMITERS if sign in header), ",")
            try:
                yield from csv.DictReader(itertools.chain([header], lines), delimiter=delimiter)
            except csv.Error as error:
                raise ValueError(f"{self.path.name}: {error}") from error

    def _reported(self, row: Mapping[str, str], number: int) -> Reported:
        from monitoring.bridge.flat import reported  # as above

        # cells beyond the header have no name; empty ones were not reported
        values = {name: _value(text) for name, text in row.items() if name and text}
        for name, value in values.items():
            if not isinstance(value, str):
                self._numeric.add(name)
            elif name not in self._texts:
                self._texts[name] = (number, value)
        return reported(values, number)

    def _said_of_text(self) -> str:
        """Say where text stands in a column of numbers; it is kept as text."""
        for name, (row, text) in self._texts.items():
            if name in self._numeric:
                return f"has text in the column {name}, row {row}, which is no metric: {text[:60]!r}"
        return ""


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
