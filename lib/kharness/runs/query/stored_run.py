"""A run as its files have it: configuration, status, the last and the best of each metric, its series."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from kharness.runs.errors import MatrixError
from kharness.runs.standing import standing
from monitoring.errors import MonitoringError
from monitoring.journal.fields.directions import Said, better_of, read_directions
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import as_number
from monitoring.journal.run_json import read_run_json
from monitoring.journal.run_state import read_end
from monitoring.journal.series import RunSeries
from monitoring.journal.series.ends import JournalEnd, journal_end
from monitoring.notes import read_notes

# Names that a condition may use for what a configuration of the harness calls otherwise.
ALSO = {"lr": "learning_rate"}


@dataclass(frozen=True)
class StoredSeries:
    """A metric of a run, a place per record that counts, in the order of the journal."""

    name: str
    steps: array[float]
    times: array[float]
    """Seconds since the run's first record."""
    values: array[float]
    """NaN where it was not finite."""
    samples: array[float] | None = None
    """Samples seen by then; None where the run does not say its batch size."""
    tokens: array[float] | None = None
    """Tokens seen by then; None where the run does not say how many a sample has."""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class StoredRun:
    """One run directory. Its journal is read when it is first needed: the end, or all of it for `best`."""

    directory: Path
    name: str
    """The path below the folder that was asked."""
    config: Mapping[str, Any]
    project: str = ""
    group: str | None = None
    started: float | None = None
    """Start of the first attempt, UTC epoch seconds."""
    command: str = ""
    """Command of the newest attempt; empty where nobody knows it."""
    problem: str = ""
    """Why run.json says nothing; empty if it does."""

    @cached_property
    def _end(self) -> JournalEnd:
        return journal_end(f"{self.directory}/{JOURNAL}")

    @cached_property
    def status(self) -> str:
        """A word of kharness.runs.status, as `kharness status` says it."""
        return standing(self.directory).status

    @property
    def step(self) -> int | None:
        """Its last step; None before the first."""
        return self._end.step

    @property
    def updated(self) -> float | None:
        """Time of its newest record, UTC epoch seconds."""
        return self._end.time

    @property
    def seconds(self) -> float | None:
        """Seconds from its start to its newest record."""
        return self.updated - self.started if self.updated and self.started else None

    @cached_property
    def last(self) -> Mapping[str, float]:
        """The last value of each metric, as far as the end of the journal goes (16 KiB)."""
        return {name: value.value for name, value in self._end.values.items()}

    @property
    def kinds(self) -> Mapping[str, str]:
        """The kind of record that has each of the last values: `step`, `eval`, `end` …"""
        return {name: value.kind for name, value in self._end.values.items()}

    @cached_property
    def best(self) -> Mapping[str, float]:
        """The best value of each metric that is known to be better up or down. It reads the whole journal.

        What no table of ours knows, CONFIG_REPORT_BETTER of the run says (`better.wer = down`).
        """
        said, found = self._directions(), dict[str, float]()
        for name, info in self._series().metrics.items():
            better = better_of(info.field, said)
            value = info.max if better == "up" else info.min if better == "down" else None
            if value is not None:
                found[name] = value
        return found

    def series(self, name: str) -> StoredSeries:
        """Return a metric of rank 0 under the name in `best` and `last`; MatrixError if it does not exist.

        Every record that counts is in it: no spike is left out.
        """
        series = self._series()
        metrics = series.metrics
        if name not in metrics or 0 not in metrics[name].keys:
            known = ", ".join(metrics) or "no metric"
            raise MatrixError(f"{self.name} has no metric {name}", hint=f"it has {known}")
        count, factors = metrics[name].count + 1, series.axes
        by_step = series.window(name, x="step", buckets=count)
        of: dict[str, array[float]] = {
            axis: array("d", [step * factor for step in by_step.x])
            for axis, factor in factors.items()
            if axis in ("samples", "tokens")
        }
        return StoredSeries(
            name, by_step.x, series.window(name, x="time", buckets=count).x, by_step.last, **of
        )

    def lookup(self, name: str) -> object:
        """Return a field by its name in small letters, for conditions: None where the run has none."""
        fact = FACTS.get(name)
        if fact is not None and (value := fact(self)) is not None:
            return value
        kind, _, rest = name.partition(".")
        if kind in ("best", "last") and rest:
            return _found(self.best if kind == "best" else self.last, rest)
        for spelled in (name, ALSO.get(name, name)):
            if (value := self.option(spelled)) is not None:
                return value
        return _found(self.last, name)

    def option(self, name: str) -> object:
        """Return an option by its name in small letters: `lr` of a command is the axis `LR` of a matrix."""
        return _found(self.config, name)

    def _series(self) -> RunSeries:
        found = RunSeries(self.directory, only=(JOURNAL,))
        found.refresh()
        return found

    def _directions(self) -> Said:
        try:
            return read_directions(str(self.config.get("REPORT_BETTER") or ""))
        except ValueError:
            return {}


# What conditions and tables call a run's facts.
FACTS: dict[str, Callable[[StoredRun], object]] = {
    "name": lambda run: run.name,
    "run": lambda run: run.name,
    "project": lambda run: run.project or None,
    "group": lambda run: run.group,
    "command": lambda run: run.command or None,
    "status": lambda run: run.status,
    "step": lambda run: run.step,
    "seconds": lambda run: run.seconds,
    "tags": lambda run: ", ".join(read_notes(run.directory).tags) or None,
    "note": lambda run: read_notes(run.directory).text or None,
}


def read_run(directory: Path, name: str) -> StoredRun:
    """Return the run in a directory; `problem` says what could not be read."""
    try:
        run = read_run_json(directory)
    except MonitoringError as error:
        start = read_end(directory / JOURNAL).start  # which has the configuration, too
        config, project = start.get("config"), str(start.get("project") or "")
        given = config if isinstance(config, dict) else {}
        return StoredRun(directory, name, given, project, problem=str(error))
    tracking, attempts = run["tracking"], run["attempts"]
    return StoredRun(
        directory,
        name,
        run["config"],
        tracking["project"],
        tracking["group"],
        as_number(attempts[0].get("started")),
        str(attempts[-1].get("command") or ""),
    )


def _found(values: Mapping[str, object], name: str) -> object:
    """Return a value by its name, whatever case that has."""
    for spelled in (name, name.upper()):  # a journal's names, and those of options
        if spelled in values:
            return values[spelled]
    own = _in_small_letters(tuple(values)).get(name)
    return None if own is None else values[own]


@lru_cache(maxsize=256)
def _in_small_letters(names: tuple[str, ...]) -> Mapping[str, str]:
    """The names, by what a condition calls them; of several that it calls the same the first."""
    return {name.lower(): name for name in reversed(names)}
