"""Alert rule: the training loss leaps up.

Method: Hampel's identifier (F. R. Hampel, The influence curve and its role in robust estimation, 1974) with
a deviation of its own for what lies above the median: (96th percentile - median) / 1.751, of the last
records: of 50 the second highest, so that one spike hides no other. The losses of small batches are skewed,
most of them near zero and some large, and differ by powers of ten where nearly all is learned: a deviation of
both sides, or of their logarithms, is then so wide that no spike is beyond it. A loss must also be SHARE
higher than the median: a training that begins to learn has noisier losses than the guess that it leaves. And
it must reach a quarter of the loss of the first records: where nearly nothing is left to learn, one sample
that is hard makes a hundred medians.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number
from monitoring.rules._measures.losses import Losses

EVENTS = ("start", "step")

LOOK = "the samples of that step{inspect} and the learning rate"

# Step records of the window that there must be.
FEWEST = 20

# The bound is computed again after so many step records.
EVERY = 5

# The quantile above the median, and where a normal distribution has it in standard deviations.
UPPER, DEVIATIONS = 0.96, 1.751

# Share of the median by which a loss must exceed it at the least.
SHARE = 0.5

# The share of the loss of the beginning that a spike reaches.
REACHED = 0.25

# Step records in a row below the limit after which a spike is over: one is often followed by more.
QUIET_RECORDS = 20


@dataclass(frozen=True)
class Options:
    """When a loss leaps."""

    limit: float
    """Standard deviations above the median of the last step records."""


class Rule:
    """Warns at the first loss beyond the limit, until QUIET_RECORDS in a row are not."""

    severity: Severity = "warning"
    hold = 0.0

    def __init__(self, options: Options) -> None:
        self._limit = options.limit
        self._message = (
            f"the training loss is more than {options.limit:g} standard deviations above its median"
        )
        self._quiet = QUIET_RECORDS
        self._losses = Losses()
        self._bound: float | None = None
        self._taken = 0

    def update(self, record: Record) -> Sequence[Finding]:
        losses = self._losses
        if record.get("event") == "start":
            losses.begin(record)
            self._bound, self._taken = None, 0
            return ()
        loss = number(record, "train_loss")
        if loss is None:
            return ()
        if self._taken % EVERY == 0 and len(losses.last) >= FEWEST:
            self._bound = self._bound_of(losses.last)
        self._taken += 1
        losses.take(loss)
        self._quiet = 0 if self._bound is not None and loss > self._bound else self._quiet + 1
        return [Finding(self._quiet < QUIET_RECORDS, self._message, value=loss, limit=self._bound)]

    def _bound_of(self, losses: Collection[float]) -> float:
        """Return the highest loss after these that is no spike."""
        ordered = sorted(losses)
        middle, upper = ordered[len(ordered) // 2], ordered[int(UPPER * len(ordered))]
        deviation = (upper - middle) / DEVIATIONS
        return max(
            middle + max(self._limit * deviation, SHARE * abs(middle)),
            REACHED * abs(self._losses.start or 0.0),
        )
