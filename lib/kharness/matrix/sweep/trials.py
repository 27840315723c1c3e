"""The trials of a sweep, as read from their run directories: a search knows nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kharness.matrix.planning.cells import Cell
from kharness.matrix.sweep.validation import Objective, read_validation
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import STOPPED_EARLY
from kharness.runs.standing import known_status
from kharness.runs.status import COMPLETE, FAILED, INTERRUPTED, PENDING, QUEUED, RUNNING, RunStatus

State = Literal["complete", "stopped_early", "open", "failed"]
"""`open`: it may still become complete; `failed`: it has ended without a value to go by."""


@dataclass(frozen=True)
class Trial:
    """One cell of a sweep and what came of it."""

    name: str
    values: Mapping[str, str]
    state: State
    reason: str
    """Why it is not complete; empty for a complete one."""
    validations: Sequence[float]
    """The metric of every validation, in order."""

    @property
    def value(self) -> float | None:
        """Objective of the trial: its last validation; None unless it is complete."""
        return self.validations[-1] if self.state == COMPLETE else None


def read_trial(matrix: Path, cell: Cell, objective: Objective) -> Trial:
    """A trial from its status.json and its journal."""
    run = matrix / cell.name
    state, reason = _state(_status(run))
    validations = read_validation(run, objective.metric)
    if state == COMPLETE and (not validations or not math.isfinite(validations[-1])):
        state = FAILED
        reason = f"its last {objective.metric} is not finite" if validations else f"no {objective.metric}"
    return Trial(cell.name, cell.values, state, reason, validations)


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
