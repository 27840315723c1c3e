"""Several variants against one baseline, run on the same seeds: whose error each comparison is judged by.

The seed is a block: what it does to all variants alike is taken out (two-way layout, variant + seed). Where
the rest varies alike in all variants, one pooled error serves all comparisons, and knows far more than
the few pairs of one comparison. Whether it does is tested: where the baseline varies more, its error is taken
apart, and where the variants do not vary alike, each has a variance of its own. Numbers in, numbers out, as
in statistics.py; docs/statistics.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kharness.report.judging.statistics import chi_square_p, variance_ratio_p

if TYPE_CHECKING:
    from numpy.typing import NDArray

BASELINE_LEVEL = 0.15
"""Of the test whether the baseline varies more than the others: its error is in every comparison."""

VARIANTS_LEVEL = 0.1
"""Of the tests whether a variant varies more than the others, all of them together."""

ALIKE_LEVEL = 0.05
"""Of the test whether the variants vary alike (Bartlett 1937): it sees several that vary more."""

# A variance below the square of this part of the largest value is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Contrast:
    """A variant less the baseline, and the error that it is judged by."""

    mean: float
    pairs: int
    variance: float
    """Of the difference of one pair."""
    degrees: float
    """Of freedom of that variance."""
    correlation: float
    """With the other comparisons, by the baseline that they share."""
    own_variance: float
    """Of this comparison's pairs alone, of pairs - 1 degrees of freedom."""
    method: str
    """`blocked` (pooled over all variants), `baseline_apart`, `each_apart` or `paired` (its own pairs)."""

    @property
    def standard_error(self) -> float:
        return math.sqrt(self.variance / self.pairs)

    @property
    def own_standard_error(self) -> float:
        return math.sqrt(self.own_variance / self.pairs)


@dataclass(frozen=True)
class _Layout:
    """What variant and seed leave unexplained in a table: the baseline first, then the others."""

    table: NDArray[np.float64]

    @property
    def pairs(self) -> int:
        return int(self.table.shape[1])

    @property
    def others(self) -> int:
        """Variants besides the baseline."""
        return len(self.table) - 1

    @property
    def total(self) -> float:
        """Sum of squares, of others * (pairs - 1) degrees of freedom."""
        return _residual(self.table)

    @property
    def within(self) -> float:
        """That of the others alone."""
        return _residual(self.table[1:])

    def pooled(self) -> _Error:
        """Of a difference, whichever variant it is of."""
        degrees = self.others * (self.pairs - 1)
        return 2 * self.total / degrees, degrees, 0.5, "blocked"


def contrasts(values: Sequence[Sequence[float]]) -> list[Contrast]:
    """Each variant (rows after the first) less the baseline (first row); columns are seeds, three or more."""
    table = np.asarray(values, dtype=float)
    differences = table[1:] - table[0]
    rounding = (_ROUNDING * float(np.abs(table).max())) ** 2
    own = np.where((found := differences.var(axis=1, ddof=1)) > rounding, found, 0.0)
    errors = _errors(_Layout(table), own, rounding)
    return [
        Contrast(mean, table.shape[1], *error[:3], variance, error[3])
        for mean, variance, error in zip(differences.mean(axis=1).tolist(), own.tolist(), errors, strict=True)
    ]


def residual_deviation(values: Sequence[Sequence[float]]) -> float | None:
    """The standard deviation that variant and seed leave unexplained; None without two of each, or spread."""
    if len(values) < 2 or len(values[0]) < 2:
        return None
    layout = _Layout(np.asarray(values, dtype=float))
    return math.sqrt(layout.total / (layout.others * (layout.pairs - 1))) or None


# variance of a difference, degrees of freedom, correlation, method
_Error = tuple[float, float, float, str]


def _errors(layout: _Layout, own: NDArray[np.float64], rounding: float) -> list[_Error]:
    n, m = layout.pairs, layout.others
    pairs: list[_Error] = [(variance, n - 1, 0.0, "paired") for variance in own.tolist()]
    if m == 1 or layout.total <= rounding * m * n:
        return pairs
    if m == 2:
        if any(_pairs_vary_more(layout, variance) for variance in own.tolist()):
            return pairs
    elif any(_variant_varies_more(layout, i) for i in range(m)) or _vary_unlike(layout.table[1:]):
        return _each_apart(layout, rounding)
    return [_baseline_apart(layout) if _baseline_varies_more(layout) else layout.pooled()] * m


def _each_apart(layout: _Layout, rounding: float) -> list[_Error]:
    """Of each variant its own variance, judged as independent groups are (Welch 1947)."""
    n, own = layout.pairs, _own_variances(layout.table)
    errors: list[_Error] = []
    for variance in own[1:].tolist():
        both = variance + float(own[0])
        if both <= rounding:
            errors.append((0.0, n - 1, 0.0, "each_apart"))
            continue
        degrees = both**2 / ((variance**2 + float(own[0]) ** 2) / (n - 1))
        errors.append((both, degrees, 0.0, "each_apart"))
    return errors


def _own_variances(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row less the mean of the others; right on average where all vary alike, near it where not."""
    rows = len(table)
    less_mean = table - (table.sum(axis=0) - table) / (rows - 1)
    found: NDArray[np.float64] = less_mean.var(axis=1, ddof=1) * (rows - 1) / rows
    return found


def _baseline_apart(layout: _Layout) -> _Error:
    """The baseline with a variance of its own, the other with that of the rest (Satterthwaite 1946)."""
    n, m = layout.pairs, layout.others
    rest = layout.within / ((m - 1) * (n - 1))
    # less the mean of the others, which has an m-th of their variance
    alone = float((layout.table[0] - layout.table[1:].mean(axis=0)).var(ddof=1))
    share = (m - 1) / m * rest
    variance = alone + share
    degrees = variance**2 / (alone**2 / (n - 1) + share**2 / ((m - 1) * (n - 1)))
    correlation = min(0.94, max(0.5, (variance - rest) / variance))
    return variance, degrees, correlation, "baseline_apart"


def _baseline_varies_more(layout: _Layout) -> bool:
    n, m = layout.pairs, layout.others
    alone = float((layout.table[0] - layout.table[1:].mean(axis=0)).var(ddof=1)) * m / (m + 1)
    return _ratio_p(alone, n - 1, layout.within, (m - 1) * (n - 1)) < BASELINE_LEVEL


def _variant_varies_more(layout: _Layout, i: int) -> bool:
    """Against the other variants without the baseline, of which there are two or more."""
    n, m = layout.pairs, layout.others
    alone = float(_own_variances(layout.table[1:])[i])
    rest = layout.within - alone * (n - 1)
    return _ratio_p(alone, n - 1, rest, (m - 2) * (n - 1)) < VARIANTS_LEVEL / m


def _vary_unlike(table: NDArray[np.float64]) -> bool:
    """Bartlett's test of the rows' own variances, three rows or more."""
    own, degrees = _own_variances(table), table.shape[1] - 1
    if own.min() <= 0:
        return True
    rows = len(own)
    statistic = rows * degrees * math.log(own.mean()) - degrees * float(np.log(own).sum())
    correction = 1 + (rows - 1 / rows) / (3 * (rows - 1) * degrees)
    return chi_square_p(statistic / correction, rows - 1) < ALIKE_LEVEL


def _pairs_vary_more(layout: _Layout, own: float) -> bool:
    """Of two variants neither stands out from the rest, so their pairs with the baseline are compared."""
    alone, n = own / 2, layout.pairs
    return _ratio_p(alone, n - 1, layout.total - alone * (n - 1), n - 1) < VARIANTS_LEVEL / 2


def _ratio_p(mean_square: float, degrees: int, rest: float, degrees_of_rest: int) -> float:
    if rest <= 0:
        return 0.0 if mean_square > 0 else 1.0
    return variance_ratio_p(mean_square / (rest / degrees_of_rest), degrees, degrees_of_rest)


def _residual(table: NDArray[np.float64]) -> float:
    rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    return float((rest**2).sum())
