"""Display of a single run in the terminal: its output, with the progress bar that the training draws
itself.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self, TextIO

from kharness.config.output import in_columns
from kharness.matrix.running.execute import ActiveRun, Outcome, end_of_journal
from kharness.matrix.running.signals import Signals
from kharness.matrix.running.unblocked import Unblocked
from kharness.runs.bar_line import DRAW_EVERY, can_have_bar
from kharness.runs.exit_codes import SAYS_STOPPED, SAYS_STOPPING
from kharness.runs.files import OUTPUT_LOG
from kharness.runs.launch import Launch
from monitoring.errors import columns_of

if TYPE_CHECKING:  # what reads journals is imported once a run is started, which does not wait for it
    from kharness.matrix.running.journal_bar import JournalBar


# Seconds that a run may take to begin without a word of it.
SHORT = 1.0
# And seconds that its process may take to end after its last record and line.
LONG = 5.0
ENDING = "ending: torch is unloaded"

# The cursor rests below the bar: what the shell prints after a SIGKILL begins on a line of its own.
WIPE = "\r\x1b[A\x1b[J"

# What a training says of the signal by which the runner passes a request on; the signal was another one.
_OF_STOP = re.compile(rf"\nSIGTERM: (?:{SAYS_STOPPING}\n|({SAYS_STOPPED}\n))".encode())


class Copier:
    """Copies text appended to a file to an output, from now on or from the file's start."""

    def __init__(self, path: Path, output: Unblocked | BinaryIO, *, from_start: bool = False) -> None:
        self._path = path
        self._output = output
        self._from_start = from_start

    def __enter__(self) -> Self:
        try:
            self._path.touch()
            self._file: BinaryIO = self._path.open("rb")
        except FileNotFoundError:  # a program has removed the directory of its run
            self._file = Path(os.devnull).open("rb")
        if not self._from_start:
            self._file.seek(0, os.SEEK_END)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self) -> bytes:
        """Return new output."""
        return self._file.read()

    def copy(self) -> None:
        new = self.read()
        if new:
            self._output.write(new)
            self._output.flush()


class PrintedRun:
    """Opened before the run is launched; `look` every now and then, and it never waits for the terminal.

    What the terminal does not take stays in output.log until it does; the rest is shown at the end.
    """

    def __init__(
        self, directory: Path, stream: TextIO, *, is_begun: bool = False, starting: str = "", signals: Signals
    ) -> None:
        """One that `is_begun` has been launched for the first time, and all that is there is its own.

        `starting` stands in place of the bar until the run prints something or begins its journal; such a run
        is one of torch, and where its process is slow to end, that is said there, too. Once
        `signals` have a request to stop, the runner has said so, and the run need not.
        """
        self._output, self._encoding = Unblocked(stream), stream.encoding
        self._copier = Copier(directory / OUTPUT_LOG, self._output, from_start=is_begun)
        self._directory, self._stream = directory, stream
        self._since = 0 if is_begun else end_of_journal(directory)
        self._starting, self._signals = starting, signals
        self._ending = ENDING if starting else ""
        self._says_starting = time.monotonic() + SHORT
        self._printed = time.monotonic()
        self._next = 0.0
        self._drawn = ""
        self._is_line = True
        """Whether what was printed so far ends with a whole line: the bar never splits one."""

    def __enter__(self) -> Self:
        self._copier.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._show(self._copier.read(), draws=False)
        if self._drawn and self._drawn == self._ending:
            self._output.write(self._encoded(self._wiping()))
        self._output.close()
        self._copier.__exit__()

    def say(self, line: str) -> None:
        """A line of the runner's own."""
        folded = in_columns(line, columns) if (columns := columns_of(self._stream)) else line
        self._output.write(self._encoded(f"{self._wiping()}{folded}\n"))
        self._output.flush()

    def look(self) -> None:
        """Show new output."""
        if self._output.is_free:
            self._show(self._copier.read(), draws=True)

    def _show(self, printed: bytes, *, draws: bool) -> None:
        # The journal has the end of an epoch before output.log has the line on it.
        if self._bar:
            self._bar.read()
        if printed and self._signals.stops:
            printed = _OF_STOP.sub(rb"\1", printed)
        if printed:
            self._output.write(self._wiping().encode() + printed)
            self._is_line, self._starting = printed.endswith(b"\n"), ""
            self._printed = time.monotonic()
        now = time.monotonic()
        if draws and self._bar and self._is_line and now >= self._next:
            self._next = now + DRAW_EVERY
            if self._bar.start:
                self._starting = ""
            is_late = now >= self._says_starting
            line = self._bar.line() or (self._starting if is_late else "")
            if self._bar.ended and now >= self._printed + LONG:
                line = self._ending
            if line != self._drawn:
                wiping = WIPE if self._drawn else ""
                self._output.write(self._encoded(f"{wiping}{line}\n" if line else wiping))
                self._drawn = line
        self._output.flush()

    @functools.cached_property
    def _bar(self) -> JournalBar | None:
        if not can_have_bar(self._stream):
            return None
        from kharness.matrix.running.journal_bar import JournalBar

        return JournalBar(self._directory, self._stream, since=self._since)

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._encoding, errors="backslashreplace")

    def _wiping(self) -> str:
        drawn, self._drawn = self._drawn, ""
        if drawn:
            self._next = 0.0  # below what is printed now
        return WIPE if drawn else ""


class PrintedJob:
    """The progress of one job of a scheduler: why it waits, where it runs, and what it prints."""

    def __init__(self, view: PrintedRun) -> None:
        self._view = view
        self._waiting = ""

    def say(self, line: str) -> None:
        self._view.say(line)

    def started(self, run: ActiveRun) -> None:
        again = f", attempt {run.number}" if run.number > 1 else ""
        self.say(f"started on {run.place}{again}")

    def update(self, running: Sequence[ActiveRun], num_waiting: int | None) -> None:
        for run in running:
            # The expected start is another one each time that the scheduler is asked.
            why = run.waiting.partition(", expected")[0] if run.waits else ""
            if why and why != self._waiting:
                self.say(f"queued: {run.waiting}")
            self._waiting = why
            if run.place:  # what it prints comes after where it does
                self._view.look()

    def ended(self, run: ActiveRun, outcome: Outcome, *, again: bool = False) -> None:
        self._view.look()
        if again:
            self.say(f"{outcome.status}: {outcome.attempt.reason}; it is submitted again")

    def not_started(self, launch: Launch, outcome: Outcome) -> None:
        """Said with the outcome."""

    def close(self) -> None:
        """The view is closed by who has opened it."""
