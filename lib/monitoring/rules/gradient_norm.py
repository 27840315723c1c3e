"""The gradient has exploded.

Method: a norm above LIMIT that is also TIMES what is usual: the 90th percentile of the attempt's last
records, and the second highest of the newest. Neither alone is a sign: a small GPT-2 and a LeNet-5 that
train well pass 10 now and then, and a norm of 0.1 that becomes 1 is no danger. The highest ones, not the
median: a training that leaves the loss of a guess has norms ten times as large as before within some steps,
but one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, number

EVENTS = ("start", "step")

LOOK = "the samples of that step{inspect}, the learning rate and the clipping of gradients"

# Step records that say what is usual, and how many there must be: before that it is the limit.
WINDOW = 50
FEWEST = 5

# What is usual for large ones, and how many of the newest count by themselves: one of these may be larger.
UPPER = 0.9
NEWEST = 10

# Times LIMIT that a norm must pass which is the only one of NEWEST above the limits: small models have such
# steps, and clipping takes them.
LONE = 2.0

# Step records below the limit after which an explosion is over: they come in bursts.
QUIET_RECORDS = 50


@dataclass(frozen=True)
class Options:
    """When a gradient has exploded."""

    limit: float = 10.0
    """The 2-norm that the gradients of a step may have."""
    times: float = 5.0
    """Times the norm that a tenth of the last step records exceed."""


class Rule:
    """Warns at the first step above both limits, until QUIET_RECORDS in a row are not."""

    severity: Severity = "warning"
    hold = 0.0

    def __init__(self, options: Options) -> None:
        self._options = options
        self._message = (
            f"the gradient norm is above {options.limit:g} and {options.times:g} times what is usual"
        )
        self._quiet = QUIET_RECORDS
        self._begin()

    def _begin(self) -> None:
        self._usual: deque[float] = deque(maxlen=WINDOW)
        self._since_high = NEWEST
        """Records since the last one above both limits."""

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") == "start":
            self._begin()
            return ()
        norm = number(record, "grad_norm")
        if norm is None:
            return ()
        bound, limit = None, self._options.limit
        self._since_high += 1
        # nearly all are below the limit: no quantile for these
        if norm > limit:
            bound = max(limit, self._options.times * self._large())
            if norm > bound:
                is_lone, self._since_high = self._since_high > NEWEST, 0
                bound = max(LONE * limit, bound) if is_lone and self._quiet >= QUIET_RECORDS else bound
        self._usual.append(norm)
        self._quiet = 0 if bound is not None and norm > bound else self._quiet + 1
        return [Finding(self._quiet < QUIET_RECORDS, self._message, value=norm, limit=bound)]

    def _large(self) -> float:
        """What is usual, for a large norm; the limit where too little is known."""
        norms = list(self._usual)
        if len(norms) < FEWEST:
            return self._options.limit
        return max(sorted(norms)[int(UPPER * len(norms))], sorted(norms[-NEWEST:])[-2])
