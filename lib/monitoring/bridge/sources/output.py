"""Metrics from what a program prints: known programs' lines, any that name their numbers, one's own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from monitoring.bridge.source import MetricSource, Reported, Watched, whole_lines
from monitoring.journal.files import OUTPUT_LOG

# Longer lines are no report.
LONGEST = 10_000
# The end of a line that was cut off when its program was killed or the disk was full (ASCII's "cancel").
CUT_OFF = b"\x18\n"

RICHNESS = 10


def variables(watched: Watched) -> Mapping[str, str]:
    """Have Python write each line when it is printed, not 8 KiB later."""
    return {"PYTHONUNBUFFERED": "1"}


def find(watched: Watched) -> Iterator[OutputSource]:
    """Yield what the program prints into output.log."""
    path = watched.directory / OUTPUT_LOG
    if path.is_file():
        yield OutputSource(path, watched.patterns)


def end_cut_off_line(path: Path) -> None:
    """End the last line if a killed attempt has not: its number may lack digits, and another line follows."""
    with contextlib.suppress(OSError), path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if file.read() not in (b"", b"\n"):
            file.write(CUT_OFF)


class OutputSource(MetricSource):
    """The output of a program; the place is a byte offset."""

    kind = "output"

    def __init__(self, path: Path, patterns: Sequence[str] = ()) -> None:
        """`patterns` are regular expressions of the user's, which go before ours."""
        super().__init__(path)
        self._patterns = patterns

    def read(self, place: int) -> Iterator[Reported]:
        """Yield what is found in whole lines."""
        from monitoring.bridge.printed_line import FOUR_DIGITS, printed_values  # no program waits for it
        from monitoring.journal.encoding.global_step import as_step

        for line, end in whole_lines(self.path, place):
            if line.endswith(CUT_OFF):
                continue
            # a progress bar draws over itself: what was printed after it counts
            for part in line[:LONGEST].split(b"\r"):
                found, is_rounded = printed_values(part.decode("utf-8", "replace"), self._patterns)
                if found:
                    self.note = FOUR_DIGITS if is_rounded else self.note
                    yield Reported(found, end, as_step(found.pop("step", None)))
