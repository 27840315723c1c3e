"""Alert rule: the gradient has exploded.

Method: a norm above LIMIT that is also TIMES what is usual: the 90th percentile of the attempt's last
records, and the second highest of the newest. Neither alone is a sign: a small GPT-2 and a LeNet-5 that
train well pass 10 now and then, and a norm of 0.1 that becomes 1 is no danger. The highest ones, not the
median: a training that leaves the loss of a guess has norms ten times as large as before within some steps,
but one after the other.

A single step beyond both is no explosion either: small GPT-2s have one of a hundred times the usual norm now
and then, and learn on as if nothing had been. It must come again within NEWEST records, or harm: the loss,
with that step or the next ones, is then HARM times its median. Where no loss is recorded each one counts.

A network that leaves the loss of a guess goes too far with its first steps: some large norms, one right after
the other, and a loss that `Losses.overshoot` explains. While nothing is learned these are no explosion.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number
from monitoring.rules._measures.losses import Losses
from monitoring.rules._measures.robust import median

EVENTS = ("start", "step")

LOOK = "the samples of that step{inspect}, the learning rate and the clipping of gradients"

# Step records that say what is usual, and how many there must be: before that it is the limit.
WINDOW = 50
FEWEST = 5

# Quantile of the usual large norms, and how many of the newest count by themselves: one may be larger.
UPPER = 0.9
NEWEST = 10

# Step records in which a single one shows whether it harms, and times its median that the loss is then.
AFTER = 4
HARM = 1.5

# Step records below the limit after which an explosion is over: they come in bursts.
QUIET_RECORDS = 50


@dataclass(frozen=True)
class Options:
    """When a gradient has exploded."""

    limit: float
    """The 2-norm that the gradients of a step may have."""
    times: float
    """Times the norm that a tenth of the last step records exceed."""


class Rule(RuleDefaults):
    """Warns of steps above both limits that come again or do harm, until QUIET_RECORDS in a row do not."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._message = (
            f"the gradient norm is above {options.limit:g} and {options.times:g} times what is usual"
        )
        self._quiet = QUIET_RECORDS
        self._losses = Losses()
        self._begin()

    def _begin(self) -> None:
        self._usual: deque[float] = deque(maxlen=WINDOW)
        self._since = WINDOW
        """Records since the last one above both limits."""
        self._high: Record = {}
        """The last record above both limits."""
        self._bound = self._most = math.inf
        """The bound of its norm, and the loss from which on it has done harm."""

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") == "start":
            self._losses.begin(record)
            self._begin()
            return ()
        norm = number(record, "grad_norm")
        if norm is None:
            return ()
        loss, has_exploded, last = number(record, "train_loss"), False, self._losses.last
        self._since += 1
        # nearly all are below the limit: no quantile for these
        if norm > self._options.limit:
            bound = max(self._options.limit, self._options.times * self._large())
            if norm > bound:
                overshoot = self._losses.overshoot()
                has_exploded = (AFTER if overshoot else 1) <= self._since <= NEWEST or not last
                self._since, self._high, self._bound = 0, record, bound
                usual = median(last) if last else math.inf
                self._most = max(HARM * abs(usual), overshoot)
        if self._since < AFTER and last:
            has_exploded = has_exploded or loss is None or loss > self._most
        self._usual.append(norm)
        if loss is not None:
            self._losses.take(loss)
        if not has_exploded:
            self._quiet += 1
            return [
                Finding(self._quiet < QUIET_RECORDS, self._message, value=norm, limit=self._options.limit)
            ]
        self._quiet = 0
        high = number(self._high, "grad_norm")
        return [Finding(True, self._message, value=high, shown_by=self._high, limit=self._bound)]

    def _large(self) -> float:
        """Return the usual norm among large ones; the limit where too little is known."""
        norms = list(self._usual)
        if len(norms) < FEWEST:
            return self._options.limit
        return max(sorted(norms)[int(UPPER * len(norms))], sorted(norms[-NEWEST:])[-2])
