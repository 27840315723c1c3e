"""Alert rule: the validation loss rises while the training loss falls.

Method: the generalization loss GL of L. Prechelt, Early Stopping - But When? (1998), by how much the
validation loss exceeds its lowest so far, is above LIMIT percent EVALUATIONS times in a row; meanwhile the
training loss is lower than it was at the lowest. As a small validation set makes single values jump, the
lowest is that of the medians of EVALUATIONS in a row. A validation loss that rises with that of the
training is a spike or a divergence, which other rules report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number
from monitoring.rules._measures.robust import median

EVENTS = ("start", "step", "eval")

UNIT = "%"

LOOK = "the best checkpoint, weight decay, augmentation and the size of the training set"

# Step records whose median is the training loss of an evaluation.
WINDOW = 50


@dataclass(frozen=True)
class Options:
    """When a training overfits."""

    limit: float
    """Percent by which the validation loss exceeds its lowest."""
    evaluations: int
    """Evaluations in a row that exceed it."""

    def __post_init__(self) -> None:
        if self.evaluations < 1:
            raise ValueError("evaluations is less than 1")


class Rule(RuleDefaults):
    """Warns while both hold; ends with a validation loss that is nearer to its lowest than the limit."""

    def __init__(self, options: Options) -> None:
        self._options = options
        far = f"more than {options.limit:g}% above its lowest"
        self._message = f"the validation loss is {far}, the training loss is lower"
        self._begin()

    def _begin(self) -> None:
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._lowest: float | None = None
        self._loss_at_lowest = 0.0
        self._validations: deque[float] = deque(maxlen=self._options.evaluations)

    def update(self, record: Record) -> Sequence[Finding]:
        event = record.get("event")
        if event == "start":
            if not isinstance(record.get("resumed_from"), dict):
                self._begin()
            return ()
        if event == "step":
            loss = number(record, "train_loss")
            if loss is not None:
                self._losses.append(loss)
            return ()
        validation = number(record, "val_loss")
        if validation is None or not self._losses:
            return ()
        return self._judge(validation, median(self._losses))

    def _judge(self, validation: float, training: float) -> Sequence[Finding]:
        self._validations.append(validation)
        if len(self._validations) < self._options.evaluations:
            return ()
        middle = median(self._validations)
        if self._lowest is None or middle < self._lowest:
            self._lowest, self._loss_at_lowest = middle, training
        excess = 100 * (min(self._validations) / self._lowest - 1) if self._lowest > 0 else 0.0
        overfits = training < self._loss_at_lowest and excess > self._options.limit
        return [Finding(overfits, self._message, value=excess, limit=self._options.limit)]
