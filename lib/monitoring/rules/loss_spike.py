"""The training loss leaps up.

Method: Hampel's identifier (F. R. Hampel, The influence curve and its role in robust estimation, 1974): a
value further from the median of those before it than LIMIT of their robust standard deviations is an
outlier. It is applied to the logarithm of the loss, for the noise of a loss is a share of it: the batches
of a model that has learnt nearly all of them differ by powers of ten. A loss must also be a tenth higher
than that median.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number
from monitoring.rules._measures.robust import median, spread

EVENTS = ("start", "step")

# Step records that are compared with, and how many there must be.
WINDOW = 100
FEWEST = 30

# The bound is computed again after so many step records.
EVERY = 10

# Of a logarithm: its exponential is a number.
LARGEST = 700.0

# By how much of the median a loss must exceed it at the least.
SHARE = 0.1

# Step records in a row below the limit after which a spike is over: one is often followed by more.
QUIET_RECORDS = 20


@dataclass(frozen=True)
class Options:
    """When a loss leaps."""

    limit: float = 6.0
    """Robust standard deviations above the median of the last step records."""


class Rule:
    """Warns at the first loss beyond the limit, until QUIET_RECORDS in a row are not."""

    severity: Severity = "warning"
    hold = 0.0

    def __init__(self, options: Options) -> None:
        self._limit = options.limit
        self._message = f"the loss is more than {options.limit:g} standard deviations above its median"
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._bound = math.inf
        self._taken = 0
        self._quiet = QUIET_RECORDS

    def update(self, record: Record) -> Sequence[Finding]:
        if (
            record.get("event") == "start"
        ):  # an attempt goes back to its checkpoint, and may do so with others
            self._losses.clear()
            self._bound, self._taken = math.inf, 0
            return ()
        loss = number(record, "train_loss")
        if loss is None:
            return ()
        if self._taken % EVERY == 0 and len(self._losses) >= FEWEST:
            self._bound = _bound(self._losses, self._limit)
        self._taken += 1
        self._losses.append(loss)
        self._quiet = 0 if loss > self._bound else self._quiet + 1
        return [Finding(self._quiet < QUIET_RECORDS, self._message, value=loss)]


def _bound(losses: Collection[float], limit: float) -> float:
    """What a loss may be after these; by their logarithms where all are above 0."""
    least = min(losses)
    values = [math.log(loss) for loss in losses] if least > 0 else list(losses)
    middle = median(values)
    bound = middle + limit * spread(values, middle)
    if least <= 0:
        return max(bound, middle + SHARE * abs(middle))
    return max(math.exp(min(bound, LARGEST)), math.exp(middle) * (1 + SHARE))
