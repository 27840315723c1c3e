"""A journal that is being written, followed as far as the display and the verdict on a run need it."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import BinaryIO

from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import (
    MEASURING,
    Record,
    as_number,
    last_line,
    parse,
    read_records,
    records_in,
)
from monitoring.journal.tail import first_place

# The pace is that of the newest steps: this many looks, at least so many seconds apart.
WINDOW = 60
WINDOW_STEP = 0.5

# Enough of a journal's end for a glance: some hundred records.
GLANCE = 65536

# Of these so many at either end are looked into, and so much of its very end says how a run has ended.
FEW = 8
LAST_BYTES = 16384

# What an attempt writes that has begun.
_COUNTING = MEASURING | {"start"}


class JournalTail:
    """What the records of the newest attempt say so far; each `update` reads only what is new."""

    def __init__(self, directory: Path, *, since: int = 0) -> None:
        """`since` is a byte offset: what stands before it is of attempts that do not matter here."""
        self.path = directory / JOURNAL
        self.start: Record = {}
        self.end: Record = {}
        self.step: int | None = None
        self.train_loss: float | None = None
        self.newest_time: float | None = None
        """Of the newest record, UTC epoch seconds."""
        self._offset = since
        self._attempt: object = None
        self._window: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._newest: tuple[int, float] | None = None

    @classmethod
    def of_end(cls, directory: Path) -> JournalTail:
        """Of a long journal by its end alone, with the start and the end of the last attempt that counts.

        One that was killed before it began wrote a record or two, and changes nothing.
        """
        tail = cls(directory)
        try:
            file = tail.path.open("rb")
        except FileNotFoundError:
            return tail
        with file:
            last: Record = {}
            for record, offset in records_in(file, max(0, os.fstat(file.fileno()).st_size - LAST_BYTES)):
                tail._offset = offset
                tail._take(record)
                last = record if record.get("event") in _COUNTING else last
            tail.end = last if last.get("event") == "end" else {}
            tail.start = _start_of(last.get("attempt"), file)
        return tail

    def update(self) -> None:
        for record, offset in read_records(self.path, self._offset):
            self._offset = offset
            self._take(record)

    def glance(self) -> None:
        """Read the first record and the newest ones only: of a long journal all that a status needs."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return
        first: Record = next((record for record, _ in read_records(self.path)), {})
        with self.path.open("rb") as file:
            self._offset = file.seek(max(self._offset, size - GLANCE))
            # From the middle of a line on, which is no record and so passed over; to the last whole line.
            lines = file.read(GLANCE).split(b"\n")[:-1]
        self._offset += sum(map(len, lines)) + len(lines)
        # the pace is that between the first and the last of them
        for line in lines if len(lines) <= 4 * FEW else [*lines[:FEW], *lines[-FEW:]]:
            record = parse(line)
            if record is not None:
                self._take(record)
        if not self.start:  # it lies further up, perhaps behind earlier attempts; the plan of all is the same
            self.start = first

    @property
    def num_steps(self) -> int | None:
        planned = self.start.get("num_steps")
        return planned if isinstance(planned, int) else None

    @property
    def steps_per_second(self) -> float | None:
        """Of the newest steps; None until that is measured."""
        if not self._window or self._newest is None:
            return None
        steps, seconds = (newest - first for newest, first in zip(self._newest, self._window[0], strict=True))
        return steps / seconds if steps > 0 and seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Of the training itself, at its present pace; None until that is measured."""
        pace = self.steps_per_second
        if pace is None or self.num_steps is None or self._newest is None or self.end:
            return None
        return max(0.0, (self.num_steps - self._newest[0]) / pace)

    def _take(self, record: Record) -> None:
        if record.get("attempt") != self._attempt:
            self._attempt = record.get("attempt")
            self.start, self.end, self.step, self.train_loss = {}, {}, None, None
            self._window.clear()
            self._newest = None
        event, time = record.get("event"), record.get("time")
        if isinstance(time, (int, float)):
            self.newest_time = float(time)
        if event == "start":
            self.start = record
            resumed = record.get("resumed_from")
            self.step = whole_step(resumed.get("global_step")) if isinstance(resumed, dict) else None
        elif event == "end":
            self.end = record
        elif event == "step":
            step, loss = whole_step(record.get("global_step")), record.get("train_loss")
            self.train_loss = float(loss) if isinstance(loss, (int, float)) else None
            if step is not None and isinstance(time, (int, float)):
                self.step = step
                self._newest = (step, float(time))
                if self._window and time < self._window[-1][1]:
                    self._window.clear()  # the clock was set back: what was measured before does not compare
                if not self._window or time - self._window[-1][1] >= WINDOW_STEP:
                    self._window.append(self._newest)


def _start_of(attempt: object, file: BinaryIO) -> Record:
    """The start record of an attempt, which is among the attempt's first; an empty one if it has none."""
    if not isinstance(attempt, int):
        return {}
    place = first_place(file, lambda record: (as_number(record.get("attempt")) or 0) >= attempt)
    if place is None:
        return {}
    for record, end in records_in(file, place):
        if record.get("attempt") != attempt or end - place > GLANCE:
            break
        if record.get("event") == "start":
            return record
    return {}


def journal_end(directory: Path) -> int:
    """The offset behind the last whole record: what a new attempt writes begins there."""
    try:
        fd = os.open(directory / JOURNAL, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        return last_line(fd)[1]
    finally:
        os.close(fd)
