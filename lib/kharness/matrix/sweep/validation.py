"""Validation results of a run so far, the only input of searches and early stopping."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.make.typed import typed_setting
from kharness.runs.errors import MatrixError
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
        self._points: dict[str, dict[int, tuple[int, float]]] = {"eval": {}, "epoch": {}, "step": {}}

    def update(self) -> None:
        for record, offset in read_records(self._path, self.offset):
            self.offset = offset
            self._take(record)

    @property
    def values(self) -> list[float]:
        """In the order of the steps; NaN where the journal says that it was not finite."""
        points = next((found for found in self._points.values() if found), {})
        return [points[step][1] for step in sorted(points)]

    def _take(self, record: Record) -> None:
        event, step, seq = record.get("event"), record.get("global_step"), record.get("seq")
        if event == "start":
            self._forget(superseded(record))
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
