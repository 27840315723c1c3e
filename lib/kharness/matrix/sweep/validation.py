"""Trials of a sweep and validation results of a run so far: the only input of searches and early stopping."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kharness.config.make.typed import typed_setting
from kharness.matrix.planning.cells import Cell
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import STOPPED_EARLY
from kharness.runs.standing import known_status
from kharness.runs.status import COMPLETE, FAILED, INTERRUPTED, PENDING, QUEUED, RUNNING, RunStatus
from monitoring.callbacks.logged import recorded_name
from monitoring.journal.fields.directions import better_of, missing_direction, read_directions
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import Record, read_records
from monitoring.journal.run_state import superseded


@dataclass(frozen=True)
class Objective:
    """A metric of the validation set, and which way is better."""

    metric: str
    minimize: bool

    def best(self, values: Sequence[float]) -> float:
        return min(values) if self.minimize else max(values)

    @property
    def words(self) -> str:
        return f"{self.metric} ({'smaller' if self.minimize else 'larger'} is better)"


def read_objective(settings: Mapping[str, object]) -> Objective:
    """SWEEP_METRIC; MatrixError for one that is not of the validation set, and for one of which neither its
    row nor REPORT_BETTER says which way it is better.
    """
    metric = str(settings.get("SWEEP_METRIC", "val_loss"))
    recorded = recorded_name(metric)
    if recorded.startswith(("test", "train")) or not metric:
        of = (
            "the test set chooses nothing"
            if recorded.startswith("test")
            else "it is not of the validation set"
        )
        raise MatrixError(f"{_given(metric)}: {of}", hint="give val_loss, val_accuracy or the like")
    try:
        said = read_directions(str(settings.get("REPORT_BETTER") or ""))
        better = better_of(metric, said)
        if better == "neither":
            better = better_of(recorded, said)
    except ValueError as error:
        raise MatrixError(
            f"REPORT_BETTER: {error} does not say which way a metric is better",
            hint="write better.wer = down; several are separated by semicolons",
        ) from error
    if better == "neither":
        raise MatrixError(
            f"{_given(metric)}: which way it is better is unknown",
            hint=typed_setting(missing_direction(metric), f"add --better {metric}=down, or {metric}=up"),
        )
    return Objective(metric, minimize=better == "down")


def _given(metric: str) -> str:
    return typed_setting(f"SWEEP_METRIC={metric}", f"--metric {metric}")


# How metrics of the test set are named.
TEST = ("test_", "test/")


class Validation:
    """One metric of a journal that may still be written; each `update` reads only what is new.

    An evaluation has it; else the record of an epoch; else steps, as of a program that prints it beside its
    loss. What a later attempt does again replaces what the first one did.
    """

    def __init__(self, run: Path, metric: str) -> None:
        self._path = run / JOURNAL
        # A script's own name, too, where what it calls so was recorded under another one.
        self._names = tuple(dict.fromkeys((metric, recorded_name(metric))))
        self.offset = 0
        """Bytes of the journal that were read."""
        self.is_tested = False
        """Whether its end has a metric of the test set, which a report judges by."""
        self._points: dict[str, dict[int, tuple[int, float]]] = {"eval": {}, "epoch": {}, "step": {}}

    def update(self) -> None:
        for record, offset in read_records(self._path, self.offset):
            self.offset = offset
            self._take(record)

    @property
    def values(self) -> list[float]:
        """The values in the order of the steps; NaN where the journal says that it was not finite."""
        points = next((found for found in self._points.values() if found), {})
        return [points[step][1] for step in sorted(points)]

    def _take(self, record: Record) -> None:
        event, step, seq = record.get("event"), record.get("global_step"), record.get("seq")
        if event == "start":
            self._forget(superseded(record))
            return
        if event == "end":
            self.is_tested = any(name.startswith(TEST) and record[name] is not None for name in record)
            return
        points = self._points.get(str(event))
        if points is None or (event == "eval" and record.get("split") == "test"):
            return
        if not isinstance(step, int) or not isinstance(seq, int):
            return
        if step == 0:  # of the first weights, which no setting has changed yet
            return
        value = next((record[name] for name in self._names if record.get(name) is not None), None)
        if value is None and not _names(record.get("nonfinite")).isdisjoint(self._names):
            value = math.nan
        if isinstance(value, (int, float)):
            points[step] = (seq, float(value))

    def _forget(self, gone: range) -> None:
        for points in self._points.values():
            for step in [step for step, (seq, _) in points.items() if seq in gone]:
                del points[step]


def read_validation(run: Path, metric: str) -> list[float]:
    """The metric of a finished run, one value a validation."""
    validation = Validation(run, metric)
    validation.update()
    return validation.values


def _names(nonfinite: object) -> frozenset[str]:
    return frozenset(nonfinite) if isinstance(nonfinite, list) else frozenset()


State = Literal["complete", "stopped_early", "open", "failed"]
"""`open`: it may still become complete; `failed`: it has ended without a value to go by."""


@dataclass(frozen=True)
class Trial:
    """One cell of a sweep and its result."""

    name: str
    values: Mapping[str, str]
    state: State
    reason: str
    """Why it is not complete; empty for a complete one."""
    validations: Sequence[float]
    """The metric of every validation, in order."""
    is_tested: bool = False
    """Whether its end has a metric of the test set."""

    @property
    def value(self) -> float | None:
        """Objective of the trial: its last validation; None unless it is complete."""
        return self.validations[-1] if self.state == COMPLETE else None


def read_trial(matrix: Path, cell: Cell, objective: Objective) -> Trial:
    """A trial from its status.json and its journal."""
    run = matrix / cell.name
    state, reason = _state(_status(run))
    validation = Validation(run, objective.metric)
    validation.update()
    validations = validation.values
    if state == COMPLETE and (not validations or not math.isfinite(validations[-1])):
        state = FAILED
        reason = f"its last {objective.metric} is not finite" if validations else f"no {objective.metric}"
    return Trial(cell.name, cell.values, state, reason, validations, validation.is_tested)


def _status(run: Path) -> RunStatus:
    try:
        return known_status(run, {})
    except MatrixError:
        return RunStatus(PENDING)


def _state(status: RunStatus) -> tuple[State, str]:
    last = status.last
    reason = (last.reason if last else None) or status.status
    if status.status == COMPLETE:
        return COMPLETE, ""
    if last is not None and last.cause == STOPPED_EARLY:
        return STOPPED_EARLY, reason
    if status.status in (PENDING, QUEUED, RUNNING, INTERRUPTED):
        return "open", reason
    return FAILED, reason
