"""How much each parameter of a sweep tells about its trials' ranks, taken alone.

The share of the variance of ranks that lies between groups of one value, (H - k + 1) / (n - k) of a
Kruskal-Wallis test (Tomczak and Tomczak, The need to report effect size estimates revisited, Trends in Sport
Sciences 1, 2014). Ranks, because one diverged trial would decide a share of losses; adjusted for the number
of groups, so that a parameter that does nothing has about 0, however many values it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A number with more values than this is put into so many groups of equal size.
MOST_GROUPS = 4

# Fewer trials than this per group say nothing.
FEWEST_PER_GROUP = 2


@dataclass(frozen=True)
class Importance:
    """One parameter."""

    symbol: str
    share: float | None
    """A share, 0 to 1; None where too few trials, or a single value, say nothing."""
    rises: bool | None
    """Whether a larger value has the larger objective; None for names, and where it is neither."""
    groups: int
    trials: int


def importances(values: Sequence[Mapping[str, str]], objectives: Sequence[float]) -> list[Importance]:
    """Return each parameter, the most telling first. `values` and `objectives` are one per complete trial."""
    symbols = dict.fromkeys(name for one in values for name in one)
    found = [_importance(symbol, values, objectives) for symbol in symbols]
    return sorted(found, key=lambda one: -1.0 if one.share is None else one.share, reverse=True)


def _importance(symbol: str, values: Sequence[Mapping[str, str]], objectives: Sequence[float]) -> Importance:
    own = [
        (one[symbol], objective) for one, objective in zip(values, objectives, strict=True) if symbol in one
    ]
    texts, numbers = [text for text, _ in own], [number for _, number in own]
    as_numbers = _numbers(texts)
    groups = texts if as_numbers is None else _binned(as_numbers)
    share = epsilon_squared(groups, numbers)
    rises = None
    if as_numbers is not None and share:
        middle = (len(own) + 1) / 2
        # The sign of Spearman's rank correlation.
        together = float(np.dot(ranks(as_numbers) - middle, ranks(numbers) - middle))
        rises = together > 0 if together else None
    return Importance(symbol, share, rises, len(set(groups)), len(own))


def epsilon_squared(groups: Sequence[str] | Sequence[float], numbers: Sequence[float]) -> float | None:
    """Return (H - k + 1) / (n - k), at least 0, of n numbers in k groups; None where it is not defined."""
    _, places, sizes = np.unique(np.array(groups), return_inverse=True, return_counts=True)
    n, k = len(numbers), len(sizes)
    if k < 2 or n < FEWEST_PER_GROUP * k:
        return None
    less_mean = ranks(numbers) - (n + 1) / 2
    total = float((less_mean**2).sum())
    if not total:
        return None
    between = float((np.bincount(places, weights=less_mean) ** 2 / sizes).sum())
    # Kruskal-Wallis' H, corrected for ties: of the squares of ranks the part between groups, times n - 1.
    statistic = (n - 1) * between / total
    return max(0.0, (statistic - k + 1) / (n - k))


def ranks(numbers: Sequence[float]) -> NDArray[np.float64]:
    """Return ranks from 1, ties sharing their mean."""
    _, places, counts = np.unique(np.array(numbers), return_inverse=True, return_counts=True)
    found: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return found


def _numbers(texts: Sequence[str]) -> list[float] | None:
    try:
        return [float(text) for text in texts]
    except ValueError:
        return None


def _binned(numbers: Sequence[float]) -> list[float]:
    """Return the numbers, or the groups of equal size that they are in where they are many."""
    different = len(set(numbers))
    if different <= MOST_GROUPS and len(numbers) >= FEWEST_PER_GROUP * different:
        return list(numbers)
    count = min(MOST_GROUPS, max(2, len(numbers) // (FEWEST_PER_GROUP + 1)))
    found: list[float] = np.floor((ranks(numbers) - 1) * count / len(numbers)).tolist()
    return found
