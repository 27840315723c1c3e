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
# Ends a line that was cut off when its program was killed or the disk was full (ASCII's "cancel").
CUT_OFF = b"\x18"

# A full disk takes whole blocks alone: of so many bytes, or a multiple.
BLOCK = 4096

RICHNESS = 10


def variables(watched: Watched) -> Mapping[str, str]:
    """Have Python write each line when it is printed, not 8 KiB later."""
    return {"PYTHONUNBUFFERED": "1"}


def find(watched: Watched) -> Iterator[OutputSource]:
    """Yield what the program prints into output.log."""
    path = watched.directory / OUTPUT_LOG
    if path.is_file():
        yield OutputSource(path, watched.patterns)


def is_at_line_start(path: Path) -> bool:
    """Whether what is printed next begins a line. OSError if there is no such file."""
    with path.open("rb", buffering=0) as file:
        return file.seek(0, os.SEEK_END) == 0 or os.pread(file.fileno(), 1, file.tell() - 1) == b"\n"


def end_cut_off_line(path: Path) -> None:
    """End the last line if its program has not: its number may lack digits, and another line follows."""
    mark = CUT_OFF + b"\n"
    with contextlib.suppress(OSError), path.open("r+b", buffering=0) as file:
        if is_at_line_start(path):
            return
        with contextlib.suppress(OSError), path.open("ab", buffering=0) as at_end:
            if at_end.write(mark) == len(mark):
                return
        # a full disk takes no byte more, but others
        os.pwrite(file.fileno(), mark, max(0, file.seek(0, os.SEEK_END) - len(mark)))


def end_whole_line(path: Path) -> None:
    """End the last line of a program that ended well, unless a full disk may have cut it off."""
    with contextlib.suppress(OSError), path.open("r+b", buffering=0) as file:
        if file.seek(0, os.SEEK_END) % BLOCK and not is_at_line_start(path):
            file.write(b"\n")


class OutputSource(MetricSource):
    """The output of a program; the place is a byte offset."""

    kind = "output"

    def __init__(self, path: Path, patterns: Sequence[str] = ()) -> None:
        """`patterns` are regular expressions of the user's, which go before ours."""
        super().__init__(path)
        self._patterns = list(patterns)
        self._is_counted = False
        """Whether there are lines inside of epochs, whose steps are counted: an epoch is no step then."""
        self.of_test: dict[str, object] = {}
        """Values of the test set in lines without a step, since the last line with metrics of its own."""

    def read(self, place: int) -> Iterator[Reported]:
        """Yield what is found in whole lines."""
        from monitoring.bridge.printed_line import FOUR_DIGITS, values_of_test  # no program waits for it
        from monitoring.journal.encoding.global_step import as_step

        for line, end in whole_lines(self.path, place):
            # a full disk may take the mark of a cut-off line, and its end not
            whole = line.rpartition(CUT_OFF)[2]
            # a progress bar draws over itself: what was printed after it counts
            for part in whole[:LONGEST].split(b"\r"):
                text = part.decode("utf-8", "replace")
                found, is_rounded = self._values(text)
                if not found and b"est" in part:
                    self.of_test |= values_of_test(text)
                if found:
                    self.of_test.clear()
                    self.note = FOUR_DIGITS if is_rounded else self.note
                    step, epoch = as_step(found.pop("step", None)), found.get("epoch")
                    self._is_counted |= step is None and epoch is not None
                    yield Reported(found, end, None if self._is_counted and step == epoch else step)

    def _values(self, text: str) -> tuple[dict[str, object], bool]:
        from monitoring.bridge.printed_line import MOST_SECONDS, SlowPatternError, printed_values  # as above

        try:
            return printed_values(text, self._patterns)
        except SlowPatternError as error:
            self._patterns.remove(error.message)
            self.left_out = (
                f"has a line on which --pattern {error.message} took {MOST_SECONDS:.0f} s: it is used no more"
            )
            return self._values(text)
