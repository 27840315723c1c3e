"""Every metric of a run directory, of all its ranks, hosts and GPUs."""

from __future__ import annotations

import math
import re
import time
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from monitoring.journal.fields import row_of
from monitoring.journal.fields.row import Better, FieldRow
from monitoring.journal.files import SAMPLES
from monitoring.journal.ranks import rank_journals, sample_journals
from monitoring.journal.records import Record, as_number
from monitoring.journal.series.journals import PLACES, SampleJournal, TrainingJournal
from monitoring.journal.series.table import SeriesTable
from monitoring.journal.series.window import Stretch, Window, window_of

Key = int | str
"""A rank, the number of a GPU, or a host; `HOST:N` is a GPU of another host than that of rank 0."""

X = Literal["step", "time", "samples", "tokens"]

# The first kind that has a metric has it under its plain name, the others as NAME@KIND.
KINDS = ("step", "eval", "epoch", "checkpoint", "end", *SAMPLES)

# A point of one GPU in gpu records: a metric of its own, whose keys are the GPUs.
_OF_ONE_GPU = re.compile(r"gpu_(\d+)_(.+)")


@dataclass(frozen=True)
class SeriesInfo:
    """A metric, and what its records come to: those of its first key."""

    name: str
    """The name that `window` takes: the field's, or NAME@KIND where another kind of record has the same."""
    field: str
    """The field of the record."""
    kind: str
    """`step`, `eval`, `epoch`, `checkpoint`, `end`, `gpu` or `system`."""
    keys: tuple[Key, ...]
    """The ranks, GPUs or hosts that have it."""
    count: int
    """Records that have it, also where it is not finite; while `coarse`, those that were looked at."""
    nonfinite: int
    last: float | None
    """Its last value, NaN if that was not finite."""
    last_step: int
    min: float | None
    """Its lowest finite value, as `max` the highest; None without any."""
    max: float | None
    coarse: bool
    """Whether its journal is not read to the end yet: a peak may be missing. `last` is true all the same."""
    row: FieldRow

    @property
    def unit(self) -> str:
        return self.row.unit

    @property
    def better(self) -> Better:
        return self.row.better

    @property
    def text(self) -> str:
        """The metric's description and how it is measured, where its row says so."""
        about = self.row.about
        return about.get(self.kind) or next(iter(about.values()), "")


class _Column(NamedTuple):
    """Where a metric of a key stands."""

    table: SeriesTable
    name: str
    field: str


class RunSeries:
    """The metrics of one run directory, live or finished, with nothing but its files.

    One thread at a time may use it. It only reads; what is wrong with a file is an OSError of `refresh`.
    """

    def __init__(self, run_dir: Path, *, only: Collection[str] = (), attempt: int | None = None) -> None:
        """`only` are names of files, if no more than these journals are to be read.

        With an `attempt` the run is as it was in it: what later ones do again is there, what they add is not.
        """
        self.run_dir = run_dir
        self._only = only
        self._attempt = attempt
        self.version = 0
        """Grows whenever the data changed."""
        self.generation = 0
        """Grows when a journal was truncated, replaced or deleted, and what was known of it forgotten."""
        self._ranks: dict[int, TrainingJournal] = {}
        self._samples: dict[tuple[str, str], SampleJournal] = {}
        self._seen: tuple[int, ...] = ()
        self._index: tuple[int, dict[str, tuple[str, dict[Key, _Column]]]] = (-1, {})
        self._known: tuple[int, dict[str, SeriesInfo]] = (-1, {})

    def refresh(self, seconds: float | None = None, *, places: int = PLACES) -> bool:
        """Read what was appended, for about so many seconds at most; True while more is left to read.

        The first look at a long journal takes samples at so many `places` of it, so that all of it can be
        drawn, marked coarse; of many runs over each other few of each will do.
        """
        until = math.inf if seconds is None else time.monotonic() + seconds
        journals = [*self._find()]
        generations = sum(journal.generation for journal in journals)
        # a part of each first: a long one must not keep the others from being seen
        first = 0.0 if until < math.inf else until
        left = [j for j in journals if j.read(until if j.version else first, places=places)]
        sampled = [journal for journal in left if journal.is_only_sampled]
        left = [journal for journal in left if journal not in sampled]
        while left and time.monotonic() < until:
            left = [journal for journal in left if journal.read(until)]
        if sum(journal.generation for journal in journals) > generations:
            self._samples.clear()
            self.generation += 1
        seen = tuple(journal.version for journal in journals)
        self.version += seen != self._seen
        self._seen = seen
        return bool(left or sampled)

    @property
    def metrics(self) -> Mapping[str, SeriesInfo]:
        """Every metric by name, those of steps first."""
        if self._known[0] != self.version:
            columns = self._columns()
            self._known = (self.version, {name: self._info(name, *of) for name, of in columns.items()})
        return self._known[1]

    def metric(self, name: str, *, key: Key | None = None) -> SeriesInfo:
        """A metric with what its records come to on one rank, GPU or host; KeyError for an unknown one."""
        kind, columns = self._columns()[name]
        found = self._info(name, kind, columns if key is None else {key: columns[key]})
        return replace(found, keys=tuple(columns))

    @property
    def began(self) -> float | None:
        """Second 0 of the axis of time, UTC epoch seconds: the first record of rank 0."""
        return next((journal.began for journal in self._ranks.values() if journal.began is not None), None)

    @property
    def axes(self) -> Mapping[X, float]:
        """The axes that this run has -> how much of it a step is; of time 1."""
        starts = (journal.state.start for journal in self._ranks.values())
        start = next(filter(None, starts), {})
        batch, tokens = as_number(start.get("batch_size")), as_number(start.get("tokens_per_sample"))
        found: dict[X, float] = {"step": 1.0, "time": 1.0}
        if batch:
            found["samples"] = batch
            if tokens:
                found["tokens"] = batch * tokens
        return found

    def window(
        self,
        name: str,
        *,
        key: Key = 0,
        x: X = "step",
        lo: float | None = None,
        hi: float | None = None,
        buckets: int = 1000,
        log_x: bool = False,
        until: float = math.inf,
    ) -> Window:
        """Return the records of a metric from `lo` to `hi` on an axis, in at most so many buckets.

        Records that came later than `until`, UTC epoch seconds, are left out. KeyError for an unknown metric,
        key or axis. Time is in seconds since `began`.
        """
        column = self._columns()[name][1][key]
        factor, zero = self.axes[x], (self.began or 0.0) if x == "time" else 0.0
        low = -math.inf if lo is None else lo / factor + zero
        high = math.inf if hi is None else hi / factor + zero
        asked = Stretch("times" if x == "time" else "steps", low, high, max(1, buckets), zero, log_x, until)
        found = window_of(column.table, column.name, asked)
        if factor != 1.0 or zero:
            found.x = array("d", [(value - zero) * factor for value in found.x])
            found.x_last = array("d", [(value - zero) * factor for value in found.x_last])
        return found

    def value_at(self, time: float, *, key: Key | None = None) -> Mapping[str, float]:
        """Return the last value of each metric at a moment (UTC epoch seconds), without those that had none.

        `key` is a rank, GPU or host; None takes each metric's first. Records that a later attempt has done
        again do not count.
        """
        found: dict[str, float] = {}
        for name, (_, columns) in self._columns().items():
            column = columns.get(next(iter(columns)) if key is None else key)
            value = column.table.value_at(column.name, time) if column is not None else None
            if value is not None:
                found[name] = value
        return found

    def newest(self, *, rank: int = 0) -> Iterator[Record]:
        """The newest step records of a rank, as far as they are held as they are: their numbers and when.

        Those of a long journal that are not read yet are the sampled ones.
        """
        journal = self._ranks.get(rank)
        table = journal.tables.get("step") if journal is not None else None
        for rows in (table.rows, table.sample) if table is not None else ():
            yield from rows.records() if rows is not None else ()

    def _find(self) -> Iterator[TrainingJournal | SampleJournal]:
        """The journals that there are, and those that there were."""
        for rank, path in rank_journals(self.run_dir).items():
            if rank not in self._ranks and self._is_read(path):
                self._ranks[rank] = TrainingJournal(path, attempt=self._attempt)
        for event, kind in SAMPLES.items():
            for host, path in sample_journals(self.run_dir, kind).items():
                if (event, host) not in self._samples and self._is_read(path):
                    self._samples[event, host] = SampleJournal(path, event)
        yield from self._ranks.values()
        yield from self._samples.values()

    def _is_read(self, path: Path) -> bool:
        return not self._only or path.name in self._only

    def _columns(self) -> dict[str, tuple[str, dict[Key, _Column]]]:
        """Name -> the kind of record, and the columns by key."""
        if self._index[0] != self.version:
            by_field: dict[tuple[str, str], dict[Key, _Column]] = {}
            for kind, key, table in self._tables():
                for name in table.names:
                    field, its_key = _split(kind, name, key)
                    by_field.setdefault((field, kind), {})[its_key] = _Column(table, name, field)
            found: dict[str, tuple[str, dict[Key, _Column]]] = {}
            for (field, kind), columns in by_field.items():
                found[field if field not in found else f"{field}@{kind}"] = (kind, columns)
            self._index = (self.version, found)
        return self._index[1]

    def _tables(self) -> Iterator[tuple[str, Key, SeriesTable]]:
        """The tables by kind and key, those of steps first."""
        for kind in KINDS:
            for rank, journal in sorted(self._ranks.items()):
                if kind in journal.tables:
                    yield kind, rank, journal.tables[kind]
            for (event, host), samples in self._samples.items():
                if event == kind and kind in samples.tables:
                    yield kind, host or 0, samples.tables[kind]

    def _info(self, name: str, kind: str, columns: Mapping[Key, _Column]) -> SeriesInfo:
        column = next(iter(columns.values()))
        figures = column.table.figures(column.name)
        has_finite = figures.low <= figures.high
        return SeriesInfo(
            name=name,
            field=column.field,
            kind=kind,
            keys=tuple(columns),
            count=figures.num_records,
            nonfinite=figures.num_nonfinite,
            last=figures.last if figures.num_records else None,
            last_step=figures.last_step,
            min=figures.low if has_finite else None,
            max=figures.high if has_finite else None,
            coarse=column.table.sample is not None,
            row=row_of(column.name),
        )


def _split(kind: str, name: str, key: Key) -> tuple[str, Key]:
    """`gpu_utilization` and GPU 3 of the point gpu_3_utilization; others as they are."""
    found = _OF_ONE_GPU.fullmatch(name) if kind == "gpu" else None
    if found is None:
        return name, key
    number = int(found[1])
    return f"gpu_{found[2]}", number if key == 0 else f"{key}:{number}"
