"""One run directory as numbers: its status, and every metric of its journal as a series over steps."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter, methodcaller
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any

from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import STOPPED_EARLY
from kharness.runs.files import STATUS_JSON
from kharness.runs.status import COMPLETE, Attempt, failed_before, other_work, read_status
from monitoring.journal.fields import FIELDS, REPORT, rows_at
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import Record, points, record_batches
from monitoring.journal.run_state import NOTHING, RunState

STEP_METRICS = tuple(row.of for row in rows_at(REPORT) if row.of)
"""Metrics of step records that every report reads; step records are nearly all of a journal.

The rest stays there, so that a thousand runs fit into memory: `RunData.metric` reads another one when asked.
"""

WALL_TIMES = frozenset(row.name for row in FIELDS if row.kind == "wall time")
"""Metrics that other work on the machine inflates; CPU time hardly is."""


@dataclass(frozen=True)
class Series:
    """One metric over `global_step`, in the order of the journal; a null in the journal is no point here."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None


@dataclass(frozen=True)
class RunData:
    """The data of one run; everything is optional, because a run may end at any moment."""

    directory: Path
    status: str
    """Status in status.json, else that of the end record; `missing` without a directory, `unfinished`
    without an end record."""
    reason: str
    """Why the run is not complete, as recorded; empty for a complete one."""
    attempts: int
    start: Mapping[str, object]
    """The start record of the last attempt."""
    end: Mapping[str, object]
    """The end record of the last attempt, empty if it has none."""
    series: Mapping[tuple[str, str], Series]
    """Series by event (`step`, `epoch`, `eval`) and metric."""
    nonfinite_records: int
    """Records in which a value was NaN or infinite."""
    tried: Sequence[Attempt] = ()
    """All attempts in status.json, oldest first."""
    cause: str | None = None
    """Why the last attempt did not complete, from status.json."""
    other_work: float | None = None
    """The share of the processors that others kept busy during it; None if that was not measured."""
    crowded: bool = False
    """Whether other work exceeds the limit for wall times: they are left out then, as if not measured."""

    @property
    def complete(self) -> bool:
        return self.status == COMPLETE

    @property
    def failed_attempts(self) -> Sequence[Attempt]:
        """Those before the last that ended badly."""
        return failed_before(self.tried)

    @property
    def unstable(self) -> bool:
        """Complete, but only because it was tried again."""
        return self.complete and bool(self.failed_attempts)

    @property
    def stopped_early(self) -> bool:
        """Whether the matrix ended it because it was losing (MATRIX_EARLY_STOPPING)."""
        return not self.complete and self.cause == STOPPED_EARLY

    @property
    def shown_status(self) -> str:
        """The status in tables."""
        if self.stopped_early:
            return "stopped early"
        return f"{self.status}, unstable" if self.unstable else self.status

    @cached_property
    def last_step(self) -> int | None:
        """The highest step that any series holds."""
        return max((series.steps[-1] for series in self.series.values() if series), default=None)

    @property
    def num_steps(self) -> int | None:
        """How many steps the run had planned."""
        planned = self.start.get("num_steps")
        return planned if isinstance(planned, int) else None

    def metric(self, event: str, name: str) -> Series:
        """Any metric that was recorded; without points for one that was not."""
        key = (event, name)
        if event == "step" and name not in STEP_METRICS and key not in self._asked:
            self._asked[key] = _read_history(self.directory, (name,)).series().get(key, Series())
        found = self.series.get(key) or self._asked.get(key)
        return found if found is not None and not (self.crowded and name in WALL_TIMES) else Series()

    @cached_property
    def _asked(self) -> dict[tuple[str, str], Series]:
        """Metrics of steps beyond STEP_METRICS that have been asked for."""
        return {}

    def validation(self, name: str) -> Series:
        """A validation metric; evaluations have it, or the epochs where a training writes no eval records."""
        return self.metric("eval", name) or self.metric("epoch", name)

    def at_end(self, name: str) -> float | None:
        """A number of the end record."""
        value = self.end.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def load_run(directory: Path, *, most_other_work: float = 1.0) -> RunData:
    """Read a run directory; nothing in it has to be there, intact or readable.

    With more other work than a share of `most_other_work` its wall times do not count.
    """
    if not directory.is_dir():
        return RunData(directory, "missing", "it has no directory", 0, {}, {}, {}, 0)
    history = _read_history(directory, STEP_METRICS)
    state = history.state
    status, reason, tried = _status(directory, state)
    share = other_work(tried)
    crowded = share is not None and share > most_other_work
    series, end = history.series(), state.end
    if crowded:
        series = {key: values for key, values in series.items() if key[1] not in WALL_TIMES}
        end = {name: value for name, value in end.items() if name not in WALL_TIMES}
    return RunData(
        directory=directory,
        status=status,
        reason=reason,
        attempts=len(tried) or state.attempt,
        start=MappingProxyType(state.start),
        end=MappingProxyType(end),
        series=MappingProxyType(series),
        nonfinite_records=history.nonfinite_records,
        tried=tried,
        cause=tried[-1].cause if tried else None,
        other_work=share,
        crowded=crowded,
    )


def _read_history(directory: Path, step_metrics: Sequence[str]) -> _History:
    history = _History(step_metrics)
    for records in record_batches(directory / JOURNAL):
        history.extend(records)
    return history


class _History:
    """The records that count: those of a later attempt replace the same steps of an earlier one."""

    def __init__(self, step_metrics: Sequence[str]) -> None:
        self.state = RunState()
        self._step_metrics = step_metrics
        self._columns = {event: _Columns() for event in ("step", "epoch", "eval")}
        self._nonfinite = array("q")

    @property
    def nonfinite_records(self) -> int:
        return len(self._nonfinite)

    def extend(self, records: Sequence[Record]) -> None:
        """Take the next records, the steps among them together."""
        events = [record.get("event") for record in records]
        # A start record may supersede steps before it, and what is not finite is counted in its order.
        if "start" not in events and not any(map(_nonfinite, records)):
            steps = [record for record, event in zip(records, events, strict=True) if event == "step"]
            if self._columns["step"].extend(steps, self._step_metrics):
                records = [record for record, event in zip(records, events, strict=True) if event != "step"]
        for record in records:
            self._add(record)

    def _add(self, record: Record) -> None:
        event, seq = record.get("event"), record.get("seq")
        seq = seq if isinstance(seq, int) else 0
        # Nearly all records are steps, and no report asks for the pace that the state takes from them.
        gone = self.state.update(record) if event != "step" else NOTHING
        if gone:
            self._forget_from(gone.start)
        if record.get("nonfinite"):
            self._nonfinite.append(seq)
        step = record.get("global_step")
        columns = self._columns.get(event) if isinstance(event, str) else None
        if columns is None or not isinstance(step, int):
            return
        if event == "step":
            columns.add(step, seq, record, self._step_metrics)
        else:
            found = points(record)
            columns.add(step, seq, found, found)

    def series(self) -> dict[tuple[str, str], Series]:
        """Return the non-empty series by event and metric."""
        return {
            (event, name): series
            for event, columns in self._columns.items()
            for name in columns.values
            if (series := columns.series(name))
        }

    def _forget_from(self, seq: int) -> None:
        """Everything after it was written before the start record that supersedes it."""
        for columns in self._columns.values():
            columns.cut(bisect_left(columns.seqs, seq))
        del self._nonfinite[bisect_left(self._nonfinite, seq) :]


_NUMBERS = {float, int, bool, NoneType}
_nonfinite = methodcaller("get", "nonfinite")


class _Columns:
    """The records of one event that count, one column per metric; NaN, or the column's end, is no value."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.seqs = array("q")
        """They rise."""
        self.values: dict[str, array[float]] = {}

    def add(self, step: int, seq: int, measured: Mapping[str, object], names: Iterable[str]) -> None:
        """Add the numbers among some names."""
        row = len(self.steps)
        self.steps.append(step)
        self.seqs.append(seq)
        for name in names:
            value = measured.get(name)
            if value.__class__ is not float and not isinstance(value, (int, float)):
                continue
            self._column(name, row).append(value)

    def extend(self, records: Sequence[Record], names: Iterable[str]) -> bool:
        """Add many records column by column; False, and nothing is added, if one needs a closer look.

        A report reads a million steps: this takes a fifth as long as one after the other.
        """
        if not records:
            return True
        fields = records[0]
        try:
            rows = list(map(itemgetter(*fields), records))
        except KeyError:
            return False
        if {*map(len, records)} != {len(fields)}:
            return False
        # All have the fields of the first, and no other.
        columns = dict(zip(fields, zip(*rows, strict=True), strict=True))
        steps: Sequence[Any] = columns.get("global_step", ())
        seqs: Sequence[Any] = columns.get("seq", ())
        if {*map(type, steps)} != {int} or {*map(type, seqs)} != {int}:
            return False
        found: list[tuple[str, Sequence[Any]]] = []
        for name in names:
            values: Sequence[Any] = columns.get(name, ())
            kinds = set(map(type, values))
            if not kinds <= _NUMBERS:
                return False
            if not kinds or kinds == {NoneType}:
                continue
            if NoneType in kinds:
                values = [math.nan if value is None else value for value in values]
            found.append((name, values))
        row = len(self.steps)
        self.steps.extend(steps)
        self.seqs.extend(seqs)
        for name, numbers in found:
            self._column(name, row).extend(numbers)
        return True

    def _column(self, name: str, rows: int) -> array[float]:
        """The column of a metric, filled up to so many rows."""
        column = self.values.get(name)
        if column is None:
            column = self.values[name] = array("d")
        # A metric that begins late or pauses has NaN in between: row i is the same step in all columns.
        if len(column) != rows:
            column.extend([math.nan] * (rows - len(column)))
        return column

    def cut(self, keep: int) -> None:
        """Keep the first records only."""
        del self.steps[keep:]
        del self.seqs[keep:]
        for column in self.values.values():
            del column[keep:]

    def series(self, name: str) -> Series:
        """Metrics that every record has share their steps: a thousand runs fit into memory."""
        values = self.values[name]
        # NaN anywhere makes the sum NaN: one pass in C instead of a loop.
        if len(values) == len(self.steps) and not math.isnan(sum(values)):
            return Series(self.steps, values)
        found = [(step, value) for step, value in zip(self.steps, values, strict=False) if value == value]
        return Series(array("q", [step for step, _ in found]), array("d", [value for _, value in found]))


def _status(directory: Path, state: RunState) -> tuple[str, str, Sequence[Attempt]]:
    """Status, reason and attempts: from status.json, else from the journal and without attempts."""
    try:
        written = read_status(directory)
        return written.status, (written.last and written.last.reason) or "", written.attempts
    except MatrixError as error:
        why = error.__cause__
        if state.status != COMPLETE and not isinstance(why, FileNotFoundError):  # that was started by hand
            return "unreadable", f"{STATUS_JSON}: {why}", ()
    if state.status == COMPLETE:
        return COMPLETE, "", ()
    if state.status is not None:
        return state.status, str(state.end.get("error") or ""), ()
    return "unfinished", "the journal has no end record", ()
