"""Metrics from what a program prints: known programs' lines, any that name their numbers, one's own."""

from __future__ import annotations

import contextlib
import os
import re
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


# Hugging Face prints its dicts by `tqdm.write`, which clears the bar before them and draws it again behind:
# then it shows each step. The bar of an evaluation, a line below, may be drawn before it.
CLEARS_BAR = rb"\r(?:\x1b\[A)?\{'"
BAR_BEHIND = rb"(?:\n\r[^\r\n]*\x1b\[A)?\r *\d+%\|[^|\r\n]*\| (\d+)/\d+ \["
NO_BAR_YET = rb"(?:\n(?:\r[^\r\n]*)?)?"
NOT_YET = -1


class OutputSource(MetricSource):
    """The output of a program; the place is a byte offset."""

    kind = "output"

    def __init__(self, path: Path, patterns: Sequence[str] = ()) -> None:
        """`patterns` are regular expressions of the user's, which go before ours."""
        super().__init__(path)
        self._patterns = list(patterns)
        self._is_counted = False
        """Whether there are lines inside of epochs, whose steps are counted: an epoch is no step then."""
        self.is_whole = False
        """Whether nothing more is printed."""
        self.of_test: dict[str, object] = {}
        """Values of the test set in lines without a step, since the last line with metrics of its own."""

    def read(self, place: int) -> Iterator[Reported]:
        """Yield what is found in whole lines."""
        from monitoring.bridge.printed_line import FOUR_DIGITS, FOUR_DIGITS_AND_BAR, values_of_test
        from monitoring.journal.encoding.global_step import as_step

        for line, end in whole_lines(self.path, place):
            # a full disk may take the mark of a cut-off line, and its end not
            whole = line.rpartition(CUT_OFF)[2]
            of_bar = self._step_of_bar(whole, end)
            if of_bar == NOT_YET:
                return
            # a progress bar draws over itself: what was printed after it counts
            for part in whole.split(b"\r"):
                text = part[:LONGEST].decode("utf-8", "replace")
                found, is_rounded = self._values(text)
                if not found and b"est" in part:
                    self.of_test |= values_of_test(text)
                if found:
                    self.of_test.clear()
                    if is_rounded and of_bar is not None:
                        self.note = FOUR_DIGITS_AND_BAR
                        yield Reported(found, end, of_bar)
                        continue
                    self.note = self.note or (FOUR_DIGITS if is_rounded else "")
                    step, epoch = as_step(found.pop("step", None)), found.get("epoch")
                    self._is_counted |= step is None and epoch is not None
                    yield Reported(found, end, None if self._is_counted and step == epoch else step)

    def _step_of_bar(self, whole: bytes, end: int) -> int | None:
        """Return the step that the progress bar behind a line shows; NOT_YET if that is still to be drawn."""
        if not re.search(CLEARS_BAR, whole):
            return None
        with self.path.open("rb") as file:
            file.seek(end)
            behind = file.read(LONGEST)
        if found := re.match(BAR_BEHIND, behind):
            return int(found[1])
        return NOT_YET if re.fullmatch(NO_BAR_YET, behind) and not self.is_whole else None

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
