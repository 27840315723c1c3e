"""Alert rule: the training loss leaps up.

Method: Hampel's identifier (F. R. Hampel, The influence curve and its role in robust estimation, 1974) with
a deviation of its own for each side of the median, of which the wider counts: (96th percentile - median) /
1.751 above it and the same with the 4th below, of the last records: of 50 the second highest and the third
lowest, so that one spike hides no other. The losses of small batches are skewed, most of them near zero and
some large: one deviation of both sides together, or of their logarithms, is then so wide that no spike is
beyond it. Where a loss falls fast, what it has just learned lies below the median, and as much may be lost in
a step without harm.

A loss must also be SHARE higher than the median, and reach a quarter of the loss of the first records: where
nearly nothing is left to learn, one sample that is hard makes a hundred medians. And while nothing is learned
it must be above what `Losses.overshoot` explains: a network that leaves the plateau of a guess goes too far,
has a loss of up to 1.9 times that of a guess for a step or two, and is back where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number
from monitoring.rules._measures.losses import Losses

EVENTS = ("start", "step")

LOOK = "the samples of that step{inspect} and the learning rate"

# Step records of the window that there must be.
FEWEST = 20

# The bound is computed again after so many step records.
EVERY = 5

# The quantiles about the median, and where a normal distribution has them in standard deviations.
LOWER, UPPER, DEVIATIONS = 0.04, 0.96, 1.751

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


class Rule(RuleDefaults):
    """Warns at the first loss beyond the limit, until QUIET_RECORDS in a row are not."""

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
        if self._bound is not None and loss > self._bound:
            self._bound = self._bound_of(losses.last)  # by what came since, too
        losses.take(loss)
        self._quiet = 0 if self._bound is not None and loss > self._bound else self._quiet + 1
        return [Finding(self._quiet < QUIET_RECORDS, self._message, value=loss, limit=self._bound)]

    def _bound_of(self, losses: Collection[float]) -> float:
        """Return the highest loss after these that is no spike."""
        ordered = sorted(losses)
        lower, middle, upper = (ordered[int(share * len(ordered))] for share in (LOWER, 0.5, UPPER))
        deviation = max(upper - middle, middle - lower) / DEVIATIONS
        return max(
            middle + max(self._limit * deviation, SHARE * abs(middle)),
            REACHED * abs(self._losses.start or 0.0),
            self._losses.overshoot(),
        )
