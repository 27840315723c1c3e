"""Which ranks of a leaderboard chance could have made: for each row the ranks that it may truly have.

Every pair of rows is compared at once (Bonferroni): a row is above as many as are shown to be worse, and
below as many as are shown to be better. All these ranges hold together with the confidence (Mohamad, Goeman
and van Zwet, Simultaneous confidence intervals for ranks, 2019; they take Tukey's bound, a little narrower).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measured:
    """What is known of a row."""

    values: Sequence[float]
    """One a seed."""
    budget: tuple[int, ...]
    """Rows of different budgets, or of an unknown one (empty), are not shown to differ."""
    num_samples: int | None = None
    """That each value is the share of: the size of the validation set, for an accuracy; else None."""


@dataclass(frozen=True)
class Ranges:
    """First and last possible rank of each row, in their order, and what they rest on."""

    ranges: Sequence[tuple[int, int]]
    method: str


def rank_ranges(rows: Sequence[Measured], *, minimize: bool) -> Ranges | None:
    """Of rows in their order, the best first; None where nobody knows how much chance there is.

    With seeds the error is that between them, pooled over all rows (as in an analysis of variance), and of
    accuracies also that of the validation set, which more seeds do not make less: two that differ by d differ
    on a share d of it at least (McNemar 1947), and half widths are squared and added. Of single accuracies it
    is the binomial one, with Agresti and Caffo's (2000) two samples more. Rows share that set, whose errors
    mostly agree, so that the latter is rather too large.
    """
    pairs = math.comb(len(rows), 2)
    freedom = sum(len(row.values) - 1 for row in rows)
    if not pairs:
        return None
    if freedom:
        spread = math.sqrt(sum(_squares(row.values) for row in rows) / freedom)
        if not spread:
            return None  # seeds that change nothing say nothing of chance
        errors = [spread / math.sqrt(len(row.values)) for row in rows]
        bound = _student_bound(pairs, freedom)
        method = "t tests with the deviation between seeds, pooled"
        if all(row.num_samples for row in rows):
            method += ", and the least error of the validation set"
    elif all(row.num_samples for row in rows):
        errors = [_binomial_error(row.values[0], row.num_samples or 0) for row in rows]
        bound = _normal_bound(pairs)
        method = "binomial error of the validation set"
    else:
        return None
    above, below = [0] * len(rows), [0] * len(rows)
    for i, j in combinations(range(len(rows)), 2):
        lead = statistics.fmean(rows[j].values) - statistics.fmean(rows[i].values)
        lead = lead if minimize else -lead
        comparable = rows[i].budget == rows[j].budget != ()
        half = bound * math.hypot(errors[i], errors[j])
        if freedom:
            half = math.hypot(half, _normal_bound(pairs) * _set_error(lead, rows[i], rows[j]))
        if comparable and lead > half:
            below[i] += 1
            above[j] += 1
    ranges = [(1 + above[i], len(rows) - below[i]) for i in range(len(rows))]
    return Ranges(ranges, method)


def _squares(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return sum((value - mean) ** 2 for value in values)


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


def _student_bound(pairs: int, freedom: int) -> float:
    from scipy import stats

    return float(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * pairs), freedom))
