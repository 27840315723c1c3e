"""Alert rule: the training loss does not decrease."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number
from monitoring.rules._measures.robust import median, spread

EVENTS = ("start", "step")

LOOK = "the learning rate, and at whether more steps are worth it"

# The median is computed again after this part of a window, and of no fewer step records than that.
EVERY = 10
FEWEST_RECORDS = 10

# Standard errors by which a median must be lower to count. Of 40 simulated plateaus of 5,000 noisy losses all
# are then found in two windows; a loss that falls by half its noise in a window is never taken for one.
SURE = 3.0


@dataclass(frozen=True)
class Options:
    """When a loss does not decrease."""

    steps: int
    """Width of the window in steps."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError("steps is less than 1")


@dataclass
class _Watched:
    """The losses of an attempt: those in the window, and the lowest median so far."""

    window: deque[tuple[float, float]] = field(default_factory=deque)
    first: float | None = None
    """Its first step."""
    next: float = 0.0
    """The step at which the median is taken next."""
    lowest: float = math.inf
    lowest_at: float = 0.0

    def median(self, step: float, loss: float, *, width: int) -> float | None:
        """The median of the last `width` steps, now and then; None in between and before `width` steps."""
        self.first = step if self.first is None else self.first
        self.window.append((step, loss))
        while self.window[0][0] <= step - width:
            self.window.popleft()
        whole = step - self.first >= width - 1
        if not whole or len(self.window) < FEWEST_RECORDS or step < self.next:
            return None
        self.next = step + width / EVERY
        return median([loss for _, loss in self.window])

    def standard_error(self, middle: float) -> float:
        """Return the standard error of the window's median, from the median distance to it.

        For a normal distribution a median is 1.2533 times as uncertain as a mean.
        """
        noise = spread([loss for _, loss in self.window], middle)
        return 1.2533 * noise / math.sqrt(len(self.window))


class Rule(RuleDefaults):
    """Warns when the median loss of a window has not fallen below its lowest for one more full window.

    So two windows are compared that have no step in common. Single spikes do not count, nor does a median
    that is lower by less than SURE of its standard errors. Ends with a new lowest median. Each attempt is
    watched by itself.
    """

    def __init__(self, options: Options) -> None:
        self._steps = options.steps
        self._watched = _Watched()

    def update(self, record: Record) -> Sequence[Finding]:
        if record.get("event") == "start":
            self._watched = _Watched()
            return ()
        loss, step = number(record, "train_loss"), number(record, "global_step")
        if loss is None or step is None:
            return ()
        watched = self._watched
        middle = watched.median(step, loss, width=self._steps)
        if middle is None:
            return ()
        if middle < watched.lowest and middle < watched.lowest - SURE * watched.standard_error(middle):
            watched.lowest, watched.lowest_at = middle, step
        stuck = step - watched.lowest_at >= self._steps
        return [
            Finding(
                stuck,
                f"the loss has not decreased in {self._steps} steps",
                value=middle,
                limit=watched.lowest,
            )
        ]
