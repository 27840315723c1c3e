"""Alert rule: the training has diverged: it has learned nothing, or has lost what it had learned.

Method: the median loss of the last records against that of the first ones, which is about what a model
without any knowledge has, and against the loss of a guess by the frequencies of the classes or tokens
(`chance_loss` of the start record), where the training says it. A rate that is far too high leaves a network
whose output is the same for all inputs, so that its loss is that of the guess to the third digit, and stays
there to the end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.journal.alerts import Severity
from monitoring.journal.end_status import COMPLETE
from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number
from monitoring.rules._measures.losses import FIRST, LEARNED, WINDOW, Losses
from monitoring.rules._measures.robust import median, spread

EVENTS = ("start", "step", "end")

LOOK = "the learning rate (a tenth of it?), the warm-up and the labels"

ABOVE = "the training has diverged: its loss is above that of its first steps"
BACK = "the training has diverged: its loss is back at that of its first steps"
NOTHING = "the training has learned nothing: its loss is not below that of a guess"

# Standard errors of the median of the first losses.
SURE = 3.0

# Step records after which the median of the last ones is looked at again.
EVERY = 5

# Step records in which a training should learn something: fewer are a trial of whether it runs.
FEWEST = 100

# Share of the loss of the beginning above which it is worse.
WORSE = 1.25

# Share above which, in the end, a training has not learned anything either, whatever it began with.
RISEN = 1.05

# A median that is below this share of that of the WINDOW before it falls: such a training still learns.
FALLS = 0.99

# Step records for which the loss stays there: a training that trembles at its highest rate may come back.
STAYS = 50

# Share of the loss of a guess by frequencies: below it, but for the noise of a median.
BELOW_CHANCE = 0.985

# Times the loss of a guess by frequencies with which a model begins, by its first record, that takes all
# tokens for as frequent: at that of a guess such a one is on its way, and above ABOVE_CHANCE it is not.
# Above these its first weights are bad ones.
AS_FREQUENT = (1.2, 2.0)
ABOVE_CHANCE = 1.05

# A training has learned when its loss was once this share of that of the beginning.
HAD_LEARNED = 0.8


@dataclass(frozen=True)
class Options:
    """When a training has diverged."""

    share: float
    """Percent of the steps after which it must have learned something."""


class Rule(RuleDefaults):
    """Reports a loss that is back at its beginning or above it, or that has not left it."""

    severity: Severity = "error"

    def __init__(self, options: Options) -> None:
        self._share = options.share
        self._num_steps: float | None = None
        self._losses = Losses()
        self._lowest = float("inf")
        self._error = 0.0
        """Possible error of the median of the first losses."""
        self._taken = self._above = 0
        self._is_lost = False
        self._medians: deque[float] = deque(maxlen=WINDOW // EVERY)

    def update(self, record: Record) -> Sequence[Finding]:
        event = record.get("event")
        if event == "start":
            self._begin(record)
            return ()
        if event == "end":
            return self._judge(is_over=True) if record.get("status") == COMPLETE else ()
        loss = number(record, "train_loss")
        if loss is None:
            return ()
        losses = self._losses
        is_known = losses.start is not None
        losses.take(loss)
        if losses.start is None:
            return ()
        self._taken += 1
        if not is_known:
            # for a normal distribution a median's standard error is 1.2533, sqrt(pi / 2), times a mean's
            self._error = SURE * 1.2533 * spread(losses.first, losses.start) / math.sqrt(FIRST)
        step, steps = number(record, "global_step"), self._num_steps
        if steps and step == steps:  # before the end record: a training prints no alert that comes after that
            return self._judge(is_over=True)
        if len(losses.last) < WINDOW or self._taken % EVERY:
            return ()
        return self._judge(is_late=bool(steps and step and 100 * step >= self._share * steps))

    def _begin(self, record: Record) -> None:
        self._num_steps = number(record, "num_steps")
        self._above = 0
        if self._losses.begin(record):
            self._lowest, self._is_lost = float("inf"), False

    def _judge(self, *, is_late: bool = False, is_over: bool = False) -> Sequence[Finding]:
        start, error, last = self._losses.start, self._error, self._losses.last
        if start is None or len(last) < FIRST:
            return ()
        # of a short training the newer half: what it began with is no part of what it came to
        now = median(list(last)[-max(FIRST, self._taken // 2) :])
        self._lowest = min(self._lowest, now)
        # lost above WORSE, found again below LEARNED: a loss between them does not make alerts come and go
        self._is_lost = now > (LEARNED if self._is_lost else WORSE) * start + error
        bound, message = WORSE * start + error, ABOVE
        if self._is_lost or self._lowest < HAD_LEARNED * start:
            bound, message = LEARNED * start + error, BACK
        falls = len(self._medians) == self._medians.maxlen and now < FALLS * self._medians[0]
        self._medians.append(now)
        if now <= bound and (is_over or (is_late and not falls)) and self._taken >= FEWEST:
            bound, message = self._guess(start + error), NOTHING
        self._above = self._above + 1 if now > bound > 0 else 0
        holds = self._above > (0 if is_over else STAYS // EVERY)
        return [Finding(holds, message, value=now, limit=bound)]

    def _guess(self, start: float) -> float:
        """Return the bound that the loss has to be below in the end.

        Where the loss of a guess is not known, say of a model that begins with what others have learned, only
        a loss that has risen shows that nothing was learned.
        """
        chance = self._losses.chance
        if chance is None:
            return RISEN * start
        lowest, highest = (times * chance for times in AS_FREQUENT)
        learns_frequencies = lowest < self._losses.first[0] < highest
        return (ABOVE_CHANCE if learns_frequencies else BELOW_CHANCE) * chance
