"""Estimate how long a training will take from earlier complete ones of the same model.

    history = read_history(results, affects)
    estimate = history.expected(values)

Read are the first and the last record of each journal and its status.json: entire journals would take longer
than some trainings.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.affects import Affects
from kharness.config.values import whole
from kharness.runs.errors import MatrixError
from kharness.runs.status import read_status
from monitoring.journal.end_status import COMPLETE
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import Record, last_record, parse

# The newest journals are read, and of each model the newest configurations are kept.
MOST_JOURNALS = 2000
MOST_CONFIGURATIONS = 200

# How long to train; MAX_TIME in minutes bounds the seconds, not the steps.
_LENGTH = ("MAX_STEPS", "MAX_TOKENS", "NUM_EPOCHS")


@dataclass(frozen=True)
class PastRun:
    """A complete training of one attempt."""

    start: Mapping[str, object]
    """Its start record."""
    config: Mapping[str, object]
    steps: int
    seconds_per_step: float
    """Evaluations and checkpoints included."""
    seconds_around: float
    """Seconds from launch to exit outside the training loop; 0 where not measured."""


@dataclass(frozen=True)
class Estimate:
    """Expected duration of one training."""

    seconds: float
    """Time from launch to exit: the median over the runs."""
    runs: int
    """Number of runs behind the estimate."""
    different: Sequence[str]
    """The symbols in which those differ from it, as far as they affect the speed."""


class History:
    """The earlier runs, by what they trained."""

    def __init__(self, runs: Sequence[PastRun], affects: Affects) -> None:
        """`runs` are the newest first."""
        self._affects = affects
        self._models: dict[object, dict[frozenset[str], list[PastRun]]] = {}
        self._nearest_to: dict[frozenset[str], list[PastRun]] = {}
        for run in runs:
            model = self._models.setdefault(run.config.get("MODEL"), {})
            key = self._essence(run.config)
            if key in model or len(model) < MOST_CONFIGURATIONS:
                model.setdefault(key, []).append(run)

    def expected(self, values: Mapping[str, object]) -> Estimate | None:
        """The estimate for a configuration; None without a complete run of its model."""
        nearest = self._nearest(values)
        seconds = [
            run.seconds_around + min(steps * run.seconds_per_step, _most_seconds(values))
            for run in nearest
            if (steps := _planned_steps(values, run)) is not None
        ]
        if not seconds:
            return None
        return Estimate(statistics.median(seconds), len(seconds), self._different(values, nearest[0].config))

    def _nearest(self, values: Mapping[str, object]) -> list[PastRun]:
        """The runs of the configuration that differs in the fewest symbols."""
        key = self._essence(values)
        if key not in self._nearest_to:
            model = self._models.get(values.get("MODEL"), {})
            nearest = min(model, key=lambda other: len(other ^ key), default=None)
            self._nearest_to[key] = model[nearest] if nearest is not None else []
        return self._nearest_to[key]

    def _essence(self, values: Mapping[str, object]) -> frozenset[str]:
        """Return the options that affect how long a step takes, in comparable form.

        An option that is n counts as absent: runs from before it existed did not have it either.
        """
        names = self._affects.names(values, "speed")
        return frozenset(f"{name}={values[name]!r}" for name in names if values[name] is not False)

    def _different(self, values: Mapping[str, object], others: Mapping[str, object]) -> list[str]:
        names = self._affects.names({**values, **others}, "speed")
        return [name for name in names if values.get(name, False) != others.get(name, False)]


def read_history(results: Path, affects: Affects) -> History:
    """The complete runs of a folder of run directories, and of the matrices in it."""
    journals = heapq.nlargest(MOST_JOURNALS, _journals(results))
    runs = (_past_run(path) for _, path in journals)
    return History([run for run in runs if run is not None], affects)


def _journals(results: Path) -> Iterator[tuple[float, Path]]:
    """Every journal with the time of its last record."""
    for run in _folders(results):
        for directory in (run, *_folders(run)):
            with contextlib.suppress(OSError):  # none here, or taken away while we looked
                yield (path := directory / JOURNAL).stat().st_mtime, path


def _folders(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []  # not there, or taken away while we looked


def _past_run(journal: Path) -> PastRun | None:
    try:
        with journal.open("rb") as file:
            start = parse(file.readline())
        end = last_record(journal)
    except OSError:
        return None
    if start is None or end is None or end.get("status") != COMPLETE or end.get("attempt") != 1:
        return None  # the time of a resumed one is in pieces
    config = start.get("config")
    steps, seconds = end.get("steps_done"), end.get("training_seconds")
    if not isinstance(config, dict) or not isinstance(steps, int) or not isinstance(seconds, (int, float)):
        return None
    if steps <= 0 or seconds <= 0:
        return None
    around = _seconds_around(journal.parent, end, seconds)
    return PastRun(start, config, steps, seconds / steps, around)


def _seconds_around(run: Path, end: Record, training: float) -> float:
    try:
        (attempt,) = read_status(run).attempts
    except (MatrixError, ValueError):
        return 0.0
    return 0.0 if attempt.seconds is None else max(0.0, attempt.seconds - training)


def _most_seconds(values: Mapping[str, object]) -> float:
    minutes = values.get("MAX_TIME")
    return 60.0 * minutes if isinstance(minutes, int | float) and minutes > 0 else math.inf


def _planned_steps(values: Mapping[str, object], past: PastRun) -> int | None:
    """How many steps a configuration trains for, as far as an earlier run lets one know."""
    limits = []
    batch, length = whole(values, "BATCH_SIZE"), past.start.get("tokens_per_sample")
    if (most := whole(values, "MAX_STEPS")) > 0:
        limits.append(most)
    if (tokens := whole(values, "MAX_TOKENS")) > 0 and isinstance(length, int) and batch:
        limits.append(max(1, tokens // (length * batch)))
    per_epoch = _steps_per_epoch(values, past)
    if (epochs := whole(values, "NUM_EPOCHS")) > 0 and per_epoch is not None:
        limits.append(epochs * per_epoch)
    if limits:
        return min(limits)
    same = all(values.get(name) == past.config.get(name) for name in _LENGTH)
    return past.steps if same else None


def _steps_per_epoch(values: Mapping[str, object], past: PastRun) -> int | None:
    if values.get("DATASET") != past.config.get("DATASET"):
        return None
    batch, known = whole(values, "BATCH_SIZE"), whole(past.start, "steps_per_epoch")
    dataset = past.start.get("dataset")
    if known and batch == past.config.get("BATCH_SIZE"):
        return known
    samples = whole(dataset, "train") if isinstance(dataset, Mapping) else 0
    return math.ceil(samples / batch) if samples and batch > 0 else None


def time_left(
    running: Sequence[float | None],
    waiting: Sequence[float | None],
    *,
    jobs: int,
    typical: float | None = None,
) -> float | None:
    """Seconds until the last run ends when `jobs` run at once, by the pace of running ones and similar runs.

    None where that is not known.

    `running` has what is left of each, `waiting` how long each will take; `typical` replaces what is
    not known of a single one.
    """
    left = [typical if one is None else one for one in running]
    lengths = [typical if one is None else one for one in waiting]
    known_left = [one for one in left if one is not None]
    known_lengths = [one for one in lengths if one is not None]
    if len(known_left) < len(left) or len(known_lengths) < len(lengths):
        return None
    # Each waiting one begins where the first place becomes free.
    places = [*known_left, *[0.0] * (jobs - len(known_left))]
    heapq.heapify(places)
    for length in sorted(known_lengths, reverse=True):
        heapq.heapreplace(places, places[0] + length)
    return max(places, default=0.0)
