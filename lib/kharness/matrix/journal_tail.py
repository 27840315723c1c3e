"""A journal that is being written, followed as far as the display and the verdict on a run need it."""

from __future__ import annotations

from pathlib import Path

from monitoring.follower import JOURNAL
from monitoring.records import Record, read_records


class JournalTail:
    """What the records of the newest attempt say so far; each `update` reads only what is new."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / JOURNAL
        self.start: Record = {}
        self.end: Record = {}
        self.step: int | None = None
        self.train_loss: float | None = None
        self._offset = 0
        self._attempt: object = None
        self._first: tuple[int, float] | None = None
        self._newest: tuple[int, float] | None = None

    def update(self) -> None:
        for record, offset in read_records(self.path, self._offset):
            self._offset = offset
            self._take(record)

    @property
    def num_steps(self) -> int | None:
        planned = self.start.get("num_steps")
        return planned if isinstance(planned, int) else None

    @property
    def seconds_left(self) -> float | None:
        """Of the training itself, at the pace of this attempt so far; None until that is measured."""
        if self._first is None or self._newest is None or self.num_steps is None or self.end:
            return None
        steps = self._newest[0] - self._first[0]
        if steps <= 0:
            return None
        pace = (self._newest[1] - self._first[1]) / steps
        return max(0.0, (self.num_steps - self._newest[0]) * pace)

    def _take(self, record: Record) -> None:
        if record.get("attempt") != self._attempt:
            self._attempt = record.get("attempt")
            self.start, self.end, self.step, self.train_loss = {}, {}, None, None
            self._first = self._newest = None
        event = record.get("event")
        if event == "start":
            self.start = record
        elif event == "end":
            self.end = record
        elif event == "step":
            step, time, loss = record.get("global_step"), record.get("time"), record.get("train_loss")
            self.train_loss = float(loss) if isinstance(loss, (int, float)) else None
            if isinstance(step, int) and isinstance(time, (int, float)):
                self.step = step
                self._newest = (step, float(time))
                self._first = self._first or self._newest
