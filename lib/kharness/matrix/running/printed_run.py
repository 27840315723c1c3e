"""Display of a single run in the terminal: its output, with the progress bar that the training draws
itself.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol, Self, TextIO

from kharness.matrix.running.execute import ActiveRun, Outcome
from kharness.matrix.running.unblocked import Unblocked
from kharness.runs.bar_line import CLEAR, DRAW_EVERY, BarPlace, bar_line, can_have_bar
from kharness.runs.files import OUTPUT_LOG
from kharness.runs.journal_tail import JournalTail, end_offset
from kharness.runs.launch import Launch
from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.records import Record

# What a training prints when an epoch has ended.
END_OF_EPOCH = re.compile(rb"^epoch (\d+)(?:/\d+)?  step ", flags=re.M)


class CopyTarget(Protocol):
    """Where copied bytes go."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...


class Copier:
    """Copies what is appended to a file, from now on or from its start."""

    def __init__(self, path: Path, output: CopyTarget, *, from_start: bool = False) -> None:
        self._path = path
        self._output = output
        self._from_start = from_start

    def __enter__(self) -> Self:
        self._path.touch()
        self._file: BinaryIO = self._path.open("rb")
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

    def __init__(self, directory: Path, stream: TextIO) -> None:
        self._output, self._encoding = Unblocked(stream), stream.encoding
        self._copier = Copier(directory / OUTPUT_LOG, self._output)
        self._bar = JournalBar(directory, stream) if can_have_bar(stream) else None
        self._next = 0.0
        self._drawn = ""
        self._is_line = True
        """Whether what was printed so far ends with a whole line: the bar never splits one."""

    def __enter__(self) -> Self:
        self._copier.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._show(self._copier.read(), draws=False)
        self._output.close()
        self._copier.__exit__()

    def say(self, line: str) -> None:
        """A line of the runner's own."""
        self._output.write(self._encoded(f"{self._wiping()}{line}\n"))
        self._output.flush()

    def look(self) -> None:
        """Show what is new."""
        if self._output.is_free:
            self._show(self._copier.read(), draws=True)

    def _show(self, printed: bytes, *, draws: bool) -> None:
        # The journal has the end of an epoch before output.log has the line on it.
        if self._bar:
            self._bar.read()
        if printed:
            shown = END_OF_EPOCH.sub(self._with_bar, printed) if self._bar else printed
            self._output.write(self._wiping().encode() + shown)
            self._is_line = printed.endswith(b"\n")
        now = time.monotonic()
        if draws and self._bar and self._is_line and now >= self._next:
            self._next = now + DRAW_EVERY
            line = self._bar.line()
            if line != self._drawn:
                self._output.write(self._encoded(f"{CLEAR}{line}"))
                self._drawn = line
        self._output.flush()

    def _with_bar(self, line: re.Match[bytes]) -> bytes:
        ended = self._bar.ended_epochs.pop(int(line[1]), "") if self._bar else ""
        return self._encoded(f"{ended}\n") + line[0] if ended else line[0]

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._encoding, errors="backslashreplace")

    def _wiping(self) -> str:
        drawn, self._drawn = self._drawn, ""
        if drawn:
            self._next = 0.0  # below what is printed now
        return CLEAR if drawn else ""


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


class JournalBar(JournalTail):
    """The bar of a training that another process does, from its journal alone."""

    def __init__(self, directory: Path, stream: TextIO) -> None:
        super().__init__(directory, since=end_offset(directory))
        self._stream = stream
        self._last_step: Mapping[str, object] = {}
        self._initial = 0
        self._began: float | None = None
        self.ended_epochs: dict[int, str] = {}
        """The bars of epochs that have ended, by their number: they stay, each over the line on its epoch."""

    def update(self, record: Record) -> range:
        gone = super().update(record)
        match record.get("event"):
            case "start":
                self._last_step = {}
                self._begin(self._place(self.step or 0))
            case "step":
                self._last_step = record
            case "epoch":
                self._end_epoch(
                    whole_step(record.get("epoch")) or 0, whole_step(record.get("global_step")) or 0
                )
        return gone

    def line(self) -> str:
        """The bar as it stands; empty before the first step, between epochs and after the last step."""
        place = self._place(self.step or 0)
        if place is None or self.ended or not self._last_step or place.done in (self._initial, place.total):
            return ""
        return self._line(place)

    def _end_epoch(self, epoch: int, step: int) -> None:
        place = self._place(step)
        if place is None or not (self.start.get("num_epochs") or step == self.num_steps):
            return
        self.ended_epochs[epoch] = self._line(place)
        self._begin(None)

    def _begin(self, place: BarPlace | None) -> None:
        self._initial = place.done if place and place.done < place.total else 0
        self._began = self.last_time

    def _line(self, place: BarPlace) -> str:
        seconds = max(0.0, (self.last_time or 0.0) - (self._began or 0.0))
        return bar_line(self._stream, place, initial=self._initial, seconds=seconds, record=self._last_step)

    def _place(self, step: int) -> BarPlace | None:
        """None for a training that does not say how long it is, and for one that prints nothing."""
        config = self.start.get("config")
        if isinstance(config, Mapping) and config.get("LOG_LEVEL", "info") != "info":
            return None
        num_epochs, num_steps = whole_step(self.start.get("num_epochs")) or 0, self.num_steps or 0
        steps_per_epoch = int(self.steps_per_epoch or 0)
        if not (steps_per_epoch if num_epochs else num_steps):
            return None
        return BarPlace.after(
            step, steps_per_epoch=steps_per_epoch, num_epochs=num_epochs, num_steps=num_steps
        )
