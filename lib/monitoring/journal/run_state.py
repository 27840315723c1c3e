"""The state of a run by its journal: step, loss, pace and time left, how it ended, and what still counts.

    state = RunState()
    for record, _ in read_records(journal):
        gone = state.update(record)  # the `seq` whose measurements no longer count, nearly always none

`read_end` computes the same from the ends of a long journal alone; `status_of` is the word for it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from monitoring.host.name import host_name
from monitoring.host.process import is_alive
from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.records import MEASURING, Record, as_number, attempt_of, parse, records_in

# The pace is that of the newest steps: this many looks, at least so many seconds apart.
WINDOW = 60
WINDOW_STEP = 0.5

# Bytes at a journal's end that the pace is taken from, some hundred records; of their beginning only so
# many lines are parsed, which makes a thousand runs a matter of a second.
GLANCE = 65536
FEW = 8
# The very end, which says how a run has ended; killed attempts may have left a record or two each after that.
LAST_BYTES = 16384

# Events of an attempt that has begun; one that was killed before that changes nothing.
_COUNTING = MEASURING | {"start"}

NOTHING = range(0)

# How a run stands that has no end record: no process of it is known, it trains, it is gone without a word, or
# it is another host's and has written nothing for so many seconds, and intervals of its records.
PENDING: Final = "pending"
RUNNING: Final = "running"
KILLED: Final = "killed"
SILENT: Final = "silent"
SILENT_AFTER = 120.0
SILENT_INTERVALS = 20


def superseded(start: Record) -> range:
    """Return the `seq` that a start record supersedes: the attempt does those measurements again."""
    marked = start.get("supersedes")
    if not isinstance(marked, Mapping):
        return NOTHING
    return range(int(marked["first_seq"]), int(marked["last_seq"]) + 1)


def is_undecided(start: Record) -> bool:
    """Whether a start record was written before it was known what the attempt does again."""
    return start.get("supersedes", "") is None


class RunState:
    """One journal, record by record."""

    def __init__(self) -> None:
        self.attempt = 0
        self.start: Record = {}
        """The newest start record."""
        self.end: Record = {}
        """The end record of the newest attempt, empty as long as it has none."""
        self.last_seq = 0
        self.last_time: float | None = None
        """Time of the newest record, UTC epoch seconds."""
        self.step: int | None = None
        """Optimizer steps that count, None before any: a resumed attempt goes back to its checkpoint."""
        self.most_steps = 0
        """The highest step ever reached, which only rises: a step that is done again counts once."""
        self.epochs_done: float | None = None
        self.train_loss: float | None = None
        """Loss in the newest step record of this attempt; None if not measured or not finite."""
        self.last_step_time: float | None = None
        """Time of the newest attempt's last step, UTC epoch seconds; of its start while it has none."""
        self._window: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._newest: tuple[int, float] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunState) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes with each record

    def update(self, record: Record) -> range:
        """Take the next record; returns the `seq` whose measurements no longer count from here on."""
        get = record.get
        event, attempt, seq, time = get("event"), get("attempt"), get("seq"), get("time")
        self.last_seq = seq if isinstance(seq, int) else 0
        self.last_time = time if isinstance(time, float) else as_number(time)
        if attempt != self.attempt and event in _COUNTING:
            self._begin_attempt(whole_step(attempt) or 0)
        if event == "step":
            self._step(record, self.last_time)
        elif event == "start":
            return self._start(record)
        elif event == "epoch":
            self.epochs_done = as_number(record.get("epoch"))
        elif event == "end":
            self.end = record
        return NOTHING

    @property
    def ended(self) -> bool:
        return bool(self.end)

    @property
    def status(self) -> str | None:
        """How the newest attempt ended, as its end record says; None as long as it has none."""
        return str(self.end.get("status")) if self.end else None

    @property
    def process(self) -> tuple[str, int]:
        """Host and process id of the newest attempt of a rank above 0; run.json has those of rank 0."""
        return str(self.start.get("host") or ""), int(as_number(self.start.get("pid")) or 0)

    @property
    def num_steps(self) -> int | None:
        """The step after which the training is complete."""
        return whole_step(self.start.get("num_steps"))

    @property
    def steps_per_epoch(self) -> float | None:
        return as_number(self.start.get("steps_per_epoch"))

    def epoch(self) -> float | None:
        """Epochs done, with the fraction of the current one where the length of an epoch is known."""
        if self.step is not None and self.steps_per_epoch:
            return self.step / self.steps_per_epoch
        return self.epochs_done

    @property
    def steps_per_second(self) -> float | None:
        """Steps per second over the newest steps; None until measured."""
        if not self._window or self._newest is None:
            return None
        steps, seconds = (newest - first for newest, first in zip(self._newest, self._window[0], strict=True))
        return steps / seconds if steps > 0 and seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds of training left after the newest step, at the present pace; None while not measured."""
        pace = self.steps_per_second
        if pace is None or self.num_steps is None or self._newest is None or self.end:
            return None
        left = (self.num_steps - self._newest[0]) / pace
        limit, began = (as_number(self.start.get(name)) for name in ("max_seconds", "time"))
        if limit is not None and began is not None:
            left = min(left, limit - (self._newest[1] - began))
        return max(0.0, left)

    def _begin_attempt(self, attempt: int) -> None:
        self.attempt, self.end = attempt, {}
        self.step = self.train_loss = self._newest = None
        self._window.clear()

    def _start(self, record: Record) -> range:
        self.start, self.last_step_time = record, self.last_time
        gone, resumed = superseded(record), record.get("resumed_from")
        if isinstance(resumed, Mapping):
            self.step = whole_step(resumed.get("global_step"))
        # an attempt from scratch supersedes all, and is at step 0 until its first record
        if gone:
            self.step, self.epochs_done = self.step or 0, None
        return gone

    def _step(self, record: Record, time: float | None) -> None:
        loss, step = record.get("train_loss"), whole_step(record.get("global_step"))
        self.train_loss = loss if isinstance(loss, float) else as_number(loss)
        self.last_step_time = time
        if step is None:
            return
        self.step = step
        if step > self.most_steps:
            self.most_steps = step
        if time is None:
            return
        self._newest = (step, time)
        window = self._window
        since = time - window[-1][1] if window else WINDOW_STEP
        if since < 0:
            window.clear()  # the clock was set back: what was measured before does not compare
        if since >= WINDOW_STEP or since < 0:
            window.append(self._newest)


def read_end(journal: Path, *, since: int = 0, until: int | None = None) -> RunState:
    """Return the state of a journal by its ends alone, as of the last attempt that counts.

    `since` and `until` are byte offsets: what stands before is of attempts that do not matter here, what
    stands after came later than the moment that is asked for. A journal that does not exist holds nothing.
    """
    state = RunState()
    try:
        file = journal.open("rb")
    except FileNotFoundError:
        return state
    with file:
        for line in _last_lines(file, since, until):
            record = parse(line)
            if record is not None:
                state.update(record)
        if state.last_seq and state.start.get("attempt") != state.attempt:
            state.start = _start_of(state.attempt, file, since)
    return state


def status_of(state: RunState, attempt: Mapping[str, Any], now: float) -> str:
    """Return how a run stands: as its end record says, else by its process, of another host by its records.

    `attempt` is the newest one of run.json, empty where there is none.
    """
    return state.status or status_before_end(state, attempt, now)


def status_before_end(state: RunState, attempt: Mapping[str, Any], now: float) -> str:
    """Return the same of an attempt that has no end record."""
    if attempt.get("host") == host_name() and isinstance(attempt.get("pid"), int):
        return RUNNING if is_alive(attempt) else KILLED
    heard = as_number(attempt.get("started")) if state.last_time is None else state.last_time
    if heard is None:
        return PENDING
    return RUNNING if now - heard < patience(state) else SILENT


def patience(state: RunState) -> float:
    """Return the seconds without a record after which a run is silent."""
    interval = 1 / state.steps_per_second if state.steps_per_second else 0.0
    return max(SILENT_AFTER, SILENT_INTERVALS * interval)


def _last_lines(file: BinaryIO, since: int, until: int | None) -> list[bytes]:
    """Return the first few lines of the last GLANCE, and those of the last LAST_BYTES, complete ones only."""
    size = os.fstat(file.fileno()).st_size if until is None else until
    begins = max(since, size - GLANCE)
    # From the middle of a line on, which is no record and so skipped.
    text = os.pread(file.fileno(), max(0, size - begins), begins)
    last = max(0, len(text) - LAST_BYTES)
    first = text[:last].split(b"\n", FEW)[:FEW] if last else []
    return [*first, *text[last:].split(b"\n")[:-1]]


def _start_of(attempt: int, file: BinaryIO, since: int) -> Record:
    """The start record of an attempt, which is among the attempt's first; an empty one if it has none."""
    first: Record = next((record for record, _ in records_in(file, since)), {})
    if first.get("attempt") == attempt and first.get("event") == "start":
        return first
    from monitoring.journal.tail import first_place  # the start of a short attempt is among its last lines

    place = first_place(file, lambda record: attempt_of(record) >= attempt)
    if place is None:
        return {}
    for record, end in records_in(file, place):
        if record.get("attempt") != attempt or end - place > GLANCE:
            break
        if record.get("event") == "start":
            return record
    return {}
