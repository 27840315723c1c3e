"""Early stopping of losing cells: asynchronous successive halving (Li et al. 2020), by Optuna.

After MATRIX_HALVING_MIN_EPOCHS validations, and again after each FACTOR times as many, a cell continues only
if it is among the best 1/FACTOR of those that came so far. Cells compete with cells of their model and
dataset, whichever seed they have; those that ended before the runner started compete too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kharness.config.make.typed import typed_setting
from kharness.config.values import whole
from kharness.matrix.running.execute import ActiveRun
from kharness.matrix.sweep.search import load_optuna
from kharness.matrix.sweep.validation import Objective, Validation, read_objective
from kharness.runs.launch import Launch
from monitoring.counts import counted
from monitoring.journal.files import JOURNAL

if TYPE_CHECKING:
    from optuna import Study, Trial

# Losses of different models, or on different data, cannot be compared.
_COMPARABLE = ("MODEL", "DATASET")
_RUNG = "completed_rung_"  # how Optuna's pruner notes what a trial had at a rung


@dataclass
class Competitor:
    """One cell and how much of its journal has been judged."""

    validation: Validation
    trial: Trial
    judged: int = 0


class Halving:
    """Watcher that stops losing trials early (successive halving)."""

    def __init__(
        self, objective: Objective, *, factor: int, min_epochs: int, launches: Sequence[Launch]
    ) -> None:
        """`launches` are all cells of the matrix: what earlier runners left of them counts as well."""
        self._objective = objective
        self._launches = launches
        self._factor = factor
        self._min_epochs = min_epochs
        self._studies: dict[tuple[object, ...], Study] = {}
        self._competitors: dict[str, Competitor] = {}
        self._take_others(())

    def look(self, running: Sequence[ActiveRun]) -> Mapping[str, str]:
        """The running cells that lose, with the reason."""
        self._take_others({run.launch.name for run in running})
        losing: dict[str, str] = {}
        for run in running:
            reason = self._judge(self._competitor(run.launch))
            if reason and not _is_over(run):
                losing[run.launch.name] = reason
        return losing

    def at_end(self) -> str:
        """See Watcher: a metric that no cell has is most likely misspelled."""
        self._take_others(())
        if not self._competitors or any(one.validation.values for one in self._competitors.values()):
            return ""
        metric = self._objective.metric
        other = typed_setting("SWEEP_METRIC=", "--metric ")
        return f"early stopping judged nothing: no run has a {metric}; {other}NAME names another"

    def _take_others(self, running: Collection[str]) -> None:
        """Take what cells left that do not run: one may begin and end between two looks."""
        for launch in self._launches:
            known = self._competitors.get(launch.name)
            seen = known.validation.offset if known else 0
            if launch.name not in running and _size(launch.directory / JOURNAL) > seen:
                self._judge(self._competitor(launch))

    def _competitor(self, launch: Launch) -> Competitor:
        known = self._competitors.get(launch.name)
        if known is None:
            validation = Validation(launch.directory, self._objective.metric)
            known = Competitor(validation, self._study(launch).ask())
            self._competitors[launch.name] = known
        return known

    def _study(self, launch: Launch) -> Study:
        group = tuple(launch.asked.get(name) for name in _COMPARABLE)
        if group not in self._studies:
            optuna = load_optuna("early stopping")
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            self._studies[group] = optuna.create_study(
                direction="minimize" if self._objective.minimize else "maximize",
                pruner=optuna.pruners.SuccessiveHalvingPruner(
                    min_resource=self._min_epochs, reduction_factor=self._factor
                ),
            )
        return self._studies[group]

    def _judge(self, competitor: Competitor) -> str:
        """Take the new validations of a cell; the reason to stop it, empty without one."""
        competitor.validation.update()
        values = competitor.validation.values
        reason = ""
        for epoch in range(competitor.judged + 1, len(values) + 1):
            value = values[epoch - 1]
            competitor.trial.report(value, epoch)
            # Called after each, for the pruner looks at the newest value only; a cell that lost at one rung
            # has lost, though it has come further since.
            loses = competitor.trial.should_prune()
            reason = reason or (self._words(competitor.trial, value, epoch) if loses else "")
        competitor.judged = max(competitor.judged, len(values))
        return reason

    def _words(self, trial: Trial, value: float, epoch: int) -> str:
        metric = self._objective.metric
        if math.isnan(value):
            return f"validation {epoch}: {metric} is not finite"
        trials = trial.study.get_trials(deepcopy=False)
        rung = sum(name.startswith(_RUNG) for name in trials[trial.number].system_attrs)
        others = sum(f"{_RUNG}{rung - 1}" in other.system_attrs for other in trials)
        return (
            f"rung {rung} (validation {epoch}): {metric} {value:.4g} is not among the best 1/{self._factor} "
            f"of the {counted(others, 'cell')} that came so far"
        )


def open_watcher(settings: Mapping[str, object], launches: Sequence[Launch]) -> Halving | None:
    """Return the early stopping of a matrix, if its settings ask for it; `launches` are all its cells.

    MatrixError for a SWEEP_METRIC that must not be optimized, and without Optuna.
    """
    if not settings.get("MATRIX_EARLY_STOPPING"):
        return None
    load_optuna("early stopping")  # which must not be found missing once cells run
    factor, epochs = whole(settings, "MATRIX_HALVING_FACTOR"), whole(settings, "MATRIX_HALVING_MIN_EPOCHS")
    return Halving(read_objective(settings), factor=factor, min_epochs=epochs, launches=launches)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # not begun
        return 0


def _is_over(run: ActiveRun) -> bool:
    """Whether a training has made its last step: stopping it would save nothing."""
    planned = run.state.num_steps
    return planned is not None and run.state.step is not None and run.state.step >= planned
