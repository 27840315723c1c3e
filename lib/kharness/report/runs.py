"""One run directory as numbers: its status, and every metric of its journal as a series over steps."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

from kharness.runs.exit_codes import STOPPED_EARLY
from kharness.runs.files import STATUS_JSON
from kharness.runs.standing import standing
from kharness.runs.status import COMPLETE, Attempt, failed_before, other_work
from monitoring.journal.fields import rows_at
from monitoring.journal.fields.row import REPORT
from monitoring.journal.fields.table import FIELDS
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import ENVELOPE, as_number, read_records
from monitoring.journal.series import TrainingJournal

STEP_METRICS = tuple(row.of for row in rows_at(REPORT) if row.of)
"""Metrics of step records that every report reads; step records are nearly all of a journal.

The rest stays there, so that a thousand runs fit into memory: `RunData.metric` reads another one when asked.
"""

PLOTTED = ("lr", "grad_norm", "samples_per_sec", "sparsity")
"""Metrics of step records that a page draws where there are few runs."""

MOST_PLOTTED = 60
"""Runs whose step records are read for PLOTTED as well."""

FIRST_RECORDS = 256
"""Records that are looked at for the names of metrics of steps."""

EVENTS = ("step", "epoch", "eval")
"""Records whose metrics are series."""

Key = tuple[str, str]
"""Event (`step`, `epoch`, `eval`) and metric."""

WALL_TIMES = frozenset(row.name for row in FIELDS if row.kind == "wall time")
"""Metrics that other work on the machine inflates; CPU time hardly is."""


def fields_in(record: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return what a record has under a name such as `config` or `dataset`; empty where that is no mapping."""
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


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
    """How it stands (kharness.runs.standing); `missing` without a directory."""
    reason: str
    """Why the run is not complete, as recorded; empty for a complete one."""
    attempts: int
    start: Mapping[str, object]
    """The start record of the last attempt."""
    end: Mapping[str, object]
    """The end record of the last attempt, empty if it has none."""
    series: Mapping[Key, Series]
    nonfinite_records: int
    """Records in which a value was NaN or infinite."""
    tried: Sequence[Attempt] = ()
    """All attempts in status.json, oldest first."""
    cause: str | None = None
    """Why the last attempt did not complete, from status.json."""
    other_work: float | None = None
    """The share of the processors that others kept busy during it; None if that was not measured."""
    reads_more: bool = False
    """Whether `series` has PLOTTED as well."""
    last_step: int | None = None
    """The highest step that any series holds."""
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

    @property
    def num_steps(self) -> int | None:
        """How many steps the run had planned."""
        planned = self.start.get("num_steps")
        return planned if isinstance(planned, int) else None

    def metric(self, event: str, name: str) -> Series:
        """Any metric that was recorded; without points for one that was not."""
        key = (event, name)
        known = (*STEP_METRICS, *PLOTTED) if self.reads_more else STEP_METRICS
        if event == "step" and name not in known and key not in self._asked:
            self._asked[key] = _series(_read_journal(self.directory, (name,))).get(key, Series())
        found = self.series.get(key) or self._asked.get(key)
        return found if found is not None and not (self.crowded and name in WALL_TIMES) else Series()

    @cached_property
    def recorded(self) -> Sequence[str]:
        """Names of its numbers; of its step records only those that are in the first FIRST_RECORDS."""
        records = islice(read_records(self.directory / JOURNAL), FIRST_RECORDS) if self.series else ()
        of_steps = (
            name
            for record, _ in records
            if record.get("event") == "step"
            for name, value in record.items()
            if name not in ENVELOPE and as_number(value) is not None
        )
        at_end = (name for name in self.end if name not in ENVELOPE and self.at_end(name) is not None)
        return list(
            dict.fromkeys([*(name for event, name in self.series if event != "step"), *at_end, *of_steps])
        )

    @cached_property
    def _asked(self) -> dict[Key, Series]:
        """Metrics of steps beyond STEP_METRICS that have been asked for."""
        return {}

    def validation(self, name: str) -> Series:
        """A validation metric; evaluations have it, or the epochs where a training writes no eval records."""
        return self.metric("eval", name) or self.metric("epoch", name)

    def at_end(self, name: str) -> float | None:
        """A number of the end record."""
        value = self.end.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def load_run(directory: Path, *, most_other_work: float = 1.0, reads_more: bool = False) -> RunData:
    """Read a run directory; nothing in it has to be there, intact or readable.

    With more other work than a share of `most_other_work` its wall times do not count; `reads_more` reads
    PLOTTED in the same pass.
    """
    if not directory.is_dir():
        return RunData(directory, "missing", "it has no directory", 0, {}, {}, {}, 0)
    journal = _read_journal(directory, (*STEP_METRICS, *PLOTTED) if reads_more else STEP_METRICS)
    state = journal.state
    found = standing(directory)
    tried = found.attempts if (directory / STATUS_JSON).exists() else ()  # else it was started by hand
    share = other_work(tried)
    crowded = share is not None and share > most_other_work
    series, end = _series(journal), state.end
    if crowded:
        series = {key: values for key, values in series.items() if key[1] not in WALL_TIMES}
        end = {name: value for name, value in end.items() if name not in WALL_TIMES}
    return RunData(
        directory=directory,
        status=found.status,
        reason=(found.last and found.last.reason) or "",
        attempts=len(tried) or state.attempt,
        start=state.start,
        end=end,
        series=series,
        nonfinite_records=len(journal.nonfinite),
        tried=tried,
        cause=tried[-1].cause if tried else None,
        other_work=share,
        reads_more=reads_more,
        last_step=max((one.steps[-1] for one in series.values()), default=None),
        crowded=crowded,
    )


def _read_journal(directory: Path, step_metrics: Sequence[str]) -> TrainingJournal:
    """The records that count: those of a later attempt replace the same steps of an earlier one."""
    journal = TrainingJournal(directory / JOURNAL, whole=step_metrics)
    journal.read(math.inf)
    return journal


def _series(journal: TrainingJournal) -> dict[Key, Series]:
    """The non-empty series by event and metric."""
    rows = {event: journal.tables[event].rows for event in EVENTS if event in journal.tables}
    return {
        (event, name): series
        for event, columns in rows.items()
        for name in columns.columns
        if (series := Series(*columns.finite(name)))
    }
