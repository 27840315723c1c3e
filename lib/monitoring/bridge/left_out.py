"""Values of sources that are left out, kept until the source that counts has reported their step.

A killed program takes along what a late tracker had not written. Where another source has kept these steps,
and both have had the same steps and values until then, it stands in for the tracker.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

# Values of a metric of one source that are kept at most: those of a second, of a thousand steps a second.
MOST = 1000
# Values of a metric that are compared with those of a source that is later than the one that counts.
COMPARED = 32
# So many values in turn tell that steps are counted alike, and all of them are reported; or the first alone.
ENOUGH = 2
# What single precision leaves of a value, with a digit to spare.
SINGLE = 1e-6


class LeftOutValue:
    """A value that was reported, too."""

    __slots__ = ("metric", "name", "place", "step", "time", "value")

    def __init__(
        self, metric: str, step: int, name: str, value: float, place: int, time: float | None
    ) -> None:
        """`name` is the metric's in that source."""
        self.metric, self.step, self.name = metric, step, name
        self.value, self.place, self.time = value, place, time


class _Likeness:
    """How a kind of source compares with the one that counts."""

    def __init__(self, compared: int = 0, in_turn: int = 0) -> None:
        self.compared = compared
        self.in_turn = in_turn
        """Values that were the same, since one was not."""

    def note(self, is_same: bool) -> None:
        self.compared += 1
        self.in_turn = self.in_turn + 1 if is_same else 0

    @property
    def is_enough(self) -> bool:
        return 0 < self.in_turn >= min(ENOUGH, self.compared)


class _Counting:
    """A metric as the source that counts has reported it in this attempt."""

    def __init__(self) -> None:
        self.step = -1
        """The last one."""
        self.values: dict[int, object] = {}
        """The newest, by step."""


class LeftOut:
    """Those of one attempt."""

    def __init__(self) -> None:
        self._counting: dict[str, _Counting] = {}
        self._ahead: dict[str, dict[int, deque[LeftOutValue]]] = {}
        self._kinds: dict[int, str] = {}
        self._likeness: dict[tuple[str, str], _Likeness] = {}

    def begin_attempt(self) -> None:
        """Forget the values; which sources are alike stays."""
        self._counting.clear()
        self._ahead.clear()

    def alike(self, kind: str) -> list[str]:
        """Return the metrics that a kind of source reports as the one that counts does."""
        return sorted(
            metric for (metric, known), one in self._likeness.items() if known == kind and one.is_enough
        )

    def know_alike(self, kind: str, metrics: Iterable[str]) -> None:
        """Take over what earlier attempts have found."""
        for metric in metrics:
            self._likeness[metric, kind] = _Likeness(ENOUGH, ENOUGH)

    def count(self, metric: str, step: int | None, value: object) -> None:
        """Take what is recorded of a metric: what others have kept of that step is not needed."""
        if step is None:
            return
        if (counting := self._counting.get(metric)) is None:
            counting = self._counting[metric] = _Counting()
        counting.step = step
        values = counting.values
        values.pop(step, None)
        values[step] = value
        if len(values) > COMPARED:
            del values[next(iter(values))]
        for number, ahead in self._ahead[metric].items() if metric in self._ahead else ():
            passed = []
            while ahead and ahead[0].step <= step:
                passed.append(ahead.popleft())
            if passed:
                is_same = len(passed) == 1 and passed[0].step == step and _is_same(value, passed[0].value)
                self._compared(metric, number, is_same)

    def leave(self, number: int, kind: str, one: LeftOutValue) -> None:
        """Take a value of a source that is left out."""
        self._kinds[number] = kind
        ahead = self._ahead.setdefault(one.metric, {}).setdefault(number, deque(maxlen=MOST))
        # it has gone back, as after a restart inside of an attempt
        while ahead and ahead[-1].step >= one.step:
            ahead.pop()
        counting = self._counting.get(one.metric)
        if counting is None or one.step > counting.step:
            ahead.append(one)
        elif one.step in counting.values:
            self._compared(one.metric, number, _is_same(counting.values[one.step], one.value))
        elif one.step > next(iter(counting.values)):
            self._compared(one.metric, number, False)

    def _compared(self, metric: str, number: int, is_same: bool) -> None:
        self._likeness.setdefault((metric, self._kinds[number]), _Likeness()).note(is_same)
        if not is_same:
            self._ahead[metric][number].clear()

    def rest(self, number: int) -> Iterator[list[LeftOutValue]]:
        """Yield what a source has kept beyond the one that counts, by step, in its order."""
        found = [
            one
            for metric, sources in self._ahead.items()
            for one in sources.get(number, ())
            if self._likeness.get((metric, self._kinds[number]), _Likeness()).is_enough
        ]
        for _, group in groupby(sorted(found, key=attrgetter("place")), attrgetter("step")):
            yield list(group)


def _is_same(counts: object, other: float) -> bool:
    """Whether two sources have the same number, which the other one may have rounded."""
    if not isinstance(counts, int | float):
        return False
    if not (math.isfinite(counts) and math.isfinite(other)):
        return repr(float(counts)) == repr(float(other))
    digits, _, exponent = repr(other).partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(counts - other) <= max(0.51 * unit, SINGLE * abs(counts))
