"""Alert rule: the gradient has vanished.

Method: the median gradient norm of the last step records is below LIMIT. Hochreiter (1991) and Bengio,
Simard and Frasconi (Learning long-term dependencies with gradient descent is difficult, 1994) describe the
fault; there is no threshold for it in theory. The default is far below what any reference training here
reaches, and above what underflow in half precision leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number
from monitoring.rules._measures.robust import median

EVENTS = ("start", "step")

LOOK = "the learning rate, the initialization and the scale of the loss"

# Step records of which the median counts.
WINDOW = 50


@dataclass(frozen=True)
class Options:
    """When a gradient has vanished."""

    limit: float
    """The 2-norm below which the gradients of half of the steps are."""


class Rule(RuleDefaults):
    """Warns while the median norm of the last WINDOW step records is below the limit."""

    def __init__(self, options: Options) -> None:
        self._limit = options.limit
        self._message = f"the gradient norm is below {options.limit:g}"
        self._norms: deque[float] = deque(maxlen=WINDOW)

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") == "start":
            self._norms.clear()
            return ()
        norm = number(record, "grad_norm")
        if norm is None:
            return ()
        self._norms.append(norm)
        if len(self._norms) < WINDOW:
            return ()
        middle = norm if min(self._norms) >= self._limit else median(self._norms)
        return [Finding(middle < self._limit, self._message, value=middle, limit=self._limit)]
