"""Rank uncertainty of a leaderboard: for each row the range of ranks that it may truly have.

Every pair of rows is compared at once (Bonferroni): a row is above as many as are shown to be worse, and
below as many as are shown to be better. All these ranges hold together with the confidence (Mohamad, Goeman
and van Zwet, Simultaneous confidence intervals for ranks, 2019; they take Tukey's bound, a little narrower).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

CONFIDENCE = 0.95

SET_ASIDE_LEVEL = 0.001
"""Familywise level of the tests whether a row varies more than the others: at a higher one, the rows left
would seem to vary less than they do."""

ALIKE_LEVEL = 0.2
"""Level of the test whether the remaining rows vary alike."""

OWN_LEVEL = 0.01
"""Level at which two rows must also differ by the spread of their own seeds, whatever the pooled error
says."""


@dataclass(frozen=True)
class Measured:
    """Measurements of a row."""

    values: Sequence[float]
    """One value per seed."""
    budget: tuple[int, ...]
    """Rows of different budgets, or of an unknown one (empty), are not shown to differ."""
    num_samples: int | None = None
    """Size of the validation set, of which an accuracy is a share; None for another metric."""


@dataclass(frozen=True)
class Ranges:
    """First and last possible rank of each row, in their order, and what they rest on."""

    ranges: Sequence[tuple[int, int]]
    method: str


def rank_ranges(rows: Sequence[Measured], *, minimize: bool) -> Ranges | None:
    """Return the rank range of each row, given best first; None where the size of chance is unknown.

    With seeds the error is that between them, pooled over the rows that vary alike (`_Spreads`), and of
    accuracies also that of the validation set, which more seeds do not make less: two that differ by d differ
    on a share d of it at least (McNemar 1947), and half widths are squared and added. Of single accuracies it
    is the binomial one, with Agresti and Caffo's (2000) two samples more. Rows share that set, whose errors
    mostly agree, so that the latter is rather too large.
    """
    pairs = math.comb(len(rows), 2)
    if not pairs:
        return None
    margin: Callable[[int, int], float]
    several = any(len(row.values) > 1 for row in rows)
    if several:
        spreads = _Spreads(rows)
        if not spreads.pooled:
            return None  # seeds that change nothing say nothing of chance
        margin, method = spreads.margin, spreads.method
        if all(row.num_samples for row in rows):
            method += ", and the least error of the validation set"
    elif all(row.num_samples for row in rows):
        errors = [_binomial_error(row.values[0], row.num_samples or 0) for row in rows]
        margin, method = _margin_of(errors, _normal_bound(pairs)), "binomial error of the validation set"
    else:
        return None
    means = [statistics.fmean(row.values) for row in rows]
    above, below = [0] * len(rows), [0] * len(rows)
    for i, j in combinations(range(len(rows)), 2):
        lead = means[j] - means[i] if minimize else means[i] - means[j]
        # A longer training explains a lead as well as the configuration does, so rows of unequal budgets are
        # not ranked.
        if lead <= 0 or not rows[i].budget == rows[j].budget != ():
            continue
        half = margin(i, j)
        if several:
            # Independent errors add in squares; the validation set is the same for every seed, so seeds do
            # not reduce its part.
            half = math.hypot(half, _normal_bound(pairs) * _set_error(lead, rows[i], rows[j]))
        if lead > half:
            below[i] += 1
            above[j] += 1
    ranges = [(1 + above[i], len(rows) - below[i]) for i in range(len(rows))]
    return Ranges(ranges, method)


class _Spreads:
    """How far the values of each row scatter between seeds, and whether all do alike.

    A row that varies more than the others (F test) is set aside, and where the rest does not vary alike
    (Bartlett 1937) all are: these pairs have their own variances (Welch 1947). Others have the pooled one,
    and must be shown by their own at a lower level, too, for such tests miss what few seeds do not show.
    """

    def __init__(self, rows: Sequence[Measured]) -> None:
        self._counts = [len(row.values) for row in rows]
        self._own = [statistics.variance(row.values) if len(row.values) > 1 else None for row in rows]
        self._alpha = (1 - CONFIDENCE) / math.comb(len(rows), 2)
        kept = [i for i, own in enumerate(self._own) if own is not None]
        several = len(kept)
        # One at a time, the largest first, and from three rows on: two rows cannot tell which of them is the
        # outlier.
        while len(kept) > 2:
            ps = [self._p_of_more(i, kept) for i in kept]
            if min(ps) >= SET_ASIDE_LEVEL / len(kept):
                break
            del kept[ps.index(min(ps))]
        self._kept = {*kept} if self._are_alike(kept) else set()
        self._degrees = sum(self._counts[i] - 1 for i in kept)
        self.pooled = self._squares(kept) / self._degrees
        own = several - len(self._kept)
        self.method = "t tests with the deviation between seeds, pooled" + (
            f" but for {own} of {several} that do not vary alike" if own else ""
        )

    def margin(self, i: int, j: int) -> float:
        """Return the difference that two rows must exceed; infinite if one of them has a single seed."""
        first, second = self._own[i], self._own[j]
        if first is None or second is None:
            return math.inf
        parts = first / self._counts[i], second / self._counts[j]
        both = sum(parts)
        if not both:
            degrees = 1.0
        else:
            degrees = both**2 / (
                parts[0] ** 2 / (self._counts[i] - 1) + parts[1] ** 2 / (self._counts[j] - 1)
            )
        if i not in self._kept or j not in self._kept:
            return _student(degrees, self._alpha) * math.sqrt(both) if both else math.inf
        pooled = self.pooled * (1 / self._counts[i] + 1 / self._counts[j])
        return max(
            _student(self._degrees, self._alpha) * math.sqrt(pooled),
            _student(degrees, OWN_LEVEL) * math.sqrt(both),
        )

    def _squares(self, rows: Sequence[int]) -> float:
        return sum((self._own[i] or 0.0) * (self._counts[i] - 1) for i in rows)

    def _p_of_more(self, i: int, rows: Sequence[int]) -> float:
        """Return the p value of the test whether a row varies more than the others of these."""
        from scipy.special import fdtrc

        own, degrees = self._own[i] or 0.0, self._counts[i] - 1
        others = sum(self._counts[j] - 1 for j in rows) - degrees
        rest = (self._squares(rows) - own * degrees) / others
        if not rest > 0:
            return 0.0 if own else 1.0
        return float(fdtrc(degrees, others, own / rest))

    def _are_alike(self, rows: Sequence[int]) -> bool:
        from scipy.special import chdtrc

        variances = [(self._own[i] or 0.0, self._counts[i] - 1) for i in rows]
        # Bartlett's statistic (1937); it takes logarithms of the variances, so zeros are decided before it.
        if len(rows) < 3 or not any(own for own, _ in variances):
            return True
        if not all(own for own, _ in variances):
            return False
        total = sum(degrees for _, degrees in variances)
        pooled = sum(own * degrees for own, degrees in variances) / total
        statistic = sum(degrees * math.log(pooled / own) for own, degrees in variances)
        correction = 1 + (sum(1 / degrees for _, degrees in variances) - 1 / total) / (3 * (len(rows) - 1))
        return float(chdtrc(len(rows) - 1, max(0.0, statistic) / correction)) >= ALIKE_LEVEL


def _margin_of(errors: Sequence[float], bound: float) -> Callable[[int, int], float]:
    return lambda i, j: bound * math.hypot(errors[i], errors[j])


def _binomial_error(share: float, number: int) -> float:
    """The standard error of a share, with one success and one failure added, so that 0 and 1 have one too."""
    adjusted = (share * number + 1) / (number + 2)
    return math.sqrt(adjusted * (1 - adjusted) / (number + 2))


def _set_error(lead: float, one: Measured, other: Measured) -> float:
    """The least that a set of so many samples allows; 0 where that is no share of a set."""
    if one.num_samples is None or other.num_samples is None:
        return 0.0
    return math.sqrt(max(0.0, abs(lead) * (1 - abs(lead))) / min(one.num_samples, other.num_samples))


def _normal_bound(pairs: int) -> float:
    return statistics.NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * pairs))


@lru_cache(maxsize=65536)
def _student(degrees: float, alpha: float) -> float:
    """Return the |t| that is exceeded with probability alpha."""
    from scipy.special import stdtrit

    return float(-stdtrit(degrees, alpha / 2))
