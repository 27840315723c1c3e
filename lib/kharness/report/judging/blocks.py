"""Errors for comparing variants with one baseline on the same seeds: pooled, or a variance of their own.

The seed is a block: what it does to all variants alike is taken out (two-way layout, variant + seed). Where
the rest varies alike in all variants, one pooled error serves all comparisons, and knows far more than
the few pairs of one comparison. Whether it does is tested: a variant that clearly varies more is set aside,
and the others have the error that they would have without it; where the baseline varies more, its error is
taken apart; and where the variants do not vary alike, each has a variance of its own. Numbers in, numbers
out, as in statistics.py; docs/statistics-formulas.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kharness.report.judging.factorial import Cell, SplitPlot, moves_with_an_axis, split_plot
from kharness.report.judging.statistics import Numbers, chi_square_p, mean_square_p, mean_square_ps

BASELINE_LEVEL = 0.15
"""Level of the test whether the baseline varies more than the others; its error enters every comparison."""

VARIANTS_LEVEL = 0.1
"""Familywise level of the tests whether a variant varies more than the others."""

ALIKE_LEVEL = 0.05
"""Level of the test for equal variances (Bartlett 1937), which detects several variants that vary more."""

SET_ASIDE_LEVEL = 0.001
"""Familywise level of the outlier tests after which a variant is left out of the pool."""

SET_ASIDE_SEEDS = 5
"""Fewest seeds for the outlier test; with fewer it cannot tell a noisy variant from an unlucky one."""

SET_ASIDE_SHARE = 0.75
"""Share of the error that is spent after outliers were removed: another noisy variant may have gone
unnoticed."""

OWN_PAIRS_LEVEL = 0.04
"""Level of the test, per variant in the pool, whether it varies too much for the pooled error."""

POOLED = ("blocked", "baseline_apart")
"""Methods whose comparisons share one pooled error."""

# A variance below the square of this part of the largest value is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Contrast:
    """The mean difference of a variant from the baseline, and the error it is judged by."""

    mean: float
    pairs: int
    variance: float
    """Variance of the difference of one pair."""
    degrees: float
    """Degrees of freedom of that variance."""
    correlation: float
    """Correlation with the other comparisons, due to the common baseline."""
    method: str
    """`blocked` (pooled over variants that vary alike), `baseline_apart`, `variant_apart` (its own pairs,
    since it varies more than the pool), `split_plot` (strata of the axes), `each_apart` or `paired` (its own
    pairs)."""
    together: int
    """Number of simultaneous comparisons with this error, including this one; 1 for an error of its own."""
    share: float
    """Share of the table's error rate that those comparisons spend."""
    own_variance: float
    """Variance of this comparison's own differences, with pairs - 1 degrees of freedom."""
    set_aside: tuple[int, ...]
    """Indices of the comparisons whose variants are left out of the pool."""
    variants: int = 0
    """Number of variants whose pairs all hold simultaneously (`among_all_pairs`); 0 where the baseline was
    planned."""

    @property
    def standard_error(self) -> float:
        return math.sqrt(self.variance / self.pairs)

    @property
    def own_standard_error(self) -> float:
        return math.sqrt(self.own_variance / self.pairs)


@dataclass(frozen=True)
class _Layout:
    """A table, baseline first, and the residuals of its two-way layout (variant + seed)."""

    table: Numbers
    cells: tuple[Cell, ...] = ()
    """Levels of each row on the axes; empty without axes."""
    rounding: float = 0.0
    """Variances up to this one are rounding error."""

    @property
    def pairs(self) -> int:
        return int(self.table.shape[1])

    @property
    def others(self) -> int:
        """Number of variants besides the baseline."""
        return len(self.table) - 1

    @cached_property
    def total(self) -> float:
        """Residual sum of squares, with others * (pairs - 1) degrees of freedom."""
        return _residual(self.table)

    @cached_property
    def within(self) -> float:
        """Residual sum of squares without the baseline."""
        return _residual(self.table[1:])

    def pooled(self) -> _Error:
        """Return the pooled error of a difference, the same for every variant."""
        degrees = self.others * (self.pairs - 1)
        # The variance of a difference is twice the residual mean square, and two differences that share a
        # baseline correlate by one half (Dunnett 1955).
        return 2 * self.total / degrees, degrees, 0.5, "blocked"

    def keeping(self, others: Sequence[int]) -> _Layout:
        """Return the layout of the baseline and the given variants."""
        rows = [0, *(i + 1 for i in others)]
        return _Layout(
            self.table[rows], tuple(self.cells[i] for i in rows) if self.cells else (), self.rounding
        )


def contrasts(
    values: Sequence[Sequence[float]] | Numbers,
    cells: Sequence[Cell] = (),
    *,
    wanted: Sequence[int] | None = None,
    outliers: Outliers | None = None,
) -> list[Contrast]:
    """Return the contrast of each variant (rows after the first) with the baseline (first row); columns are
    seeds, three or more.

    `cells` are the levels of each row where variants are combinations of several axes. Of `wanted` variants
    alone, if given, in their order; `outliers` are what `outliers_of_each` has found, where they are known.
    """
    table = np.asarray(values, dtype=float)
    differences = table[1:] - table[0]
    rounding = _rounding(table)
    own = np.where((found := differences.var(axis=1, ddof=1)) > rounding, found, 0.0)
    layout = _Layout(table, tuple(cells), rounding)
    aside = _set_aside(layout) if outliers is None else outliers.aside
    errors = _errors(layout, aside, own.tolist(), outliers.wild if outliers and not aside else None)
    # Each of m comparisons may spend 1/m of the table's error. Those with one error hold together by
    # Dunnett's distribution, so they spend their parts as one.
    pooled = sum(error[3] in POOLED for error in errors)
    spent = (SET_ASIDE_SHARE if aside else 1) / layout.others
    means = differences.mean(axis=1)
    return [
        Contrast(
            float(means[i]),
            layout.pairs,
            *errors[i],
            together=pooled if errors[i][3] in POOLED else 1,
            share=spent * (pooled if errors[i][3] in POOLED else 1),
            own_variance=float(own[i]),
            set_aside=aside,
        )
        for i in (range(layout.others) if wanted is None else wanted)
    ]


def own_pairs(table: Numbers, baseline: int) -> tuple[Numbers, Numbers]:
    """Return mean and variance of every row's differences from one of them, as `contrasts` has them."""
    differences = table - table[baseline]
    variances = differences.var(axis=1, ddof=1)
    return differences.mean(axis=1), np.where(variances > _rounding(table), variances, 0.0)


def main_effect(
    values: Sequence[Sequence[float]], cells: Sequence[Cell], weights: Sequence[float]
) -> Contrast:
    """Return the contrast of rows times weights, such as one level's mean minus that of another.

    The error is that of the table's strata where its variants vary alike otherwise, else that of the sum's
    own values over the seeds.
    """
    table = np.asarray(values, dtype=float)
    of_seeds, rounding = np.asarray(weights) @ table, _rounding(table)
    own = float(of_seeds.var(ddof=1)) if of_seeds.var(ddof=1) > rounding else 0.0
    layout = _Layout(table, tuple(cells), rounding)
    error = _by_pairs(layout, own, "paired")
    plot = split_plot(table, cells, rounding)
    if plot is not None and not _set_aside(layout):
        of_rows = (table[1:] - table[0]).var(axis=1, ddof=1).tolist()
        methods = {one[3] for one in _errors_of_kept(layout, of_rows)}
        found = plot.error(weights)
        # other methods say that the variants do not vary alike, which the strata take for granted
        if methods <= {"blocked", "split_plot", "variant_apart"} and not _too_much(own, layout, found):
            error = (*_at_least(found, layout), 0.0, "blocked" if plot.alike else "split_plot")
    return Contrast(float(of_seeds.mean()), layout.pairs, *error, 1, 1, own, ())


def among_all_pairs(contrast: Contrast, variants: int) -> Contrast:
    """Return the contrast at a level that holds for all pairs of so many variants, as one picked later needs.

    By Tukey's range where one error serves all; else by Bonferroni's inequality, whatever the errors are.
    """
    pairs = math.comb(variants, 2)
    together = contrast.method == "blocked" and not contrast.set_aside
    changed = (
        {"together": pairs, "share": 1.0, "variants": variants}
        if together
        else {"together": 1, "share": 1 / pairs, "correlation": 0.0}
    )
    # As `replace` does, in a third of its time: a thousand variants are half a million pairs.
    return Contrast(**{**vars(contrast), **changed})


def residual_deviation(values: Sequence[Sequence[float]]) -> float | None:
    """The standard deviation that variant and seed leave unexplained, without variants that are set aside.

    None without two of each, or spread.
    """
    if len(values) < 2 or len(values[0]) < 2:
        return None
    layout = _Layout(np.asarray(values, dtype=float))
    aside = _set_aside(layout)
    kept = layout.keeping([i for i in range(layout.others) if i not in aside])
    return math.sqrt(kept.total / (kept.others * (kept.pairs - 1))) or None


# (variance of a difference, degrees of freedom, correlation, method)
_Error = tuple[float, float, float, str]


def _set_aside(layout: _Layout) -> tuple[int, ...]:
    """Return the indices of variants that vary far more than the others."""
    return _wild(layout, SET_ASIDE_LEVEL) if layout.pairs >= SET_ASIDE_SEEDS else ()


def _wild(layout: _Layout, level: float) -> tuple[int, ...]:
    """Return the indices of variants that fail an outlier test of their variance at this level.

    Up to half are left out one after another, the one that varies most first. All of them up to the last that
    varied more than what was left are wild, for two can hide one another (Rosner 1983).
    """
    rest, degrees = _centered(layout.table[1:]), layout.pairs - 1
    left = list(range(layout.others))
    out: list[int] = []
    most: list[float] = []
    of_others: list[float] = []
    while len(left) > 2 and len(out) < layout.others // 2:
        less_mean = rest - rest.sum(axis=0) / len(left)
        squares = np.einsum("ij,ij->i", less_mean, less_mean)
        place = int(squares.argmax())
        # The mean of k rows has this one in it, so its square is (k-1)/k of its variance; and k/(k-1) of it
        # is what the sum of squares loses with the row.
        most.append(float(squares[place]) / degrees * len(left) / (len(left) - 1))
        of_others.append(float(squares.sum()) - most[-1] * degrees)
        out.append(left.pop(place))
        rest[place:-1] = rest[place + 1 :]
        rest = rest[:-1]
    rows = layout.others - np.arange(len(out), dtype=float)
    ps = mean_square_ps(np.array(most), degrees, np.array(of_others), (rows - 2) * degrees)
    wild = max((i + 1 for i in np.flatnonzero(ps < level / rows)), default=0)
    return tuple(sorted(out[:wild]))


@dataclass(frozen=True)
class Outliers:
    """The variants that vary more than the others, as indices among these, by two levels of the same test."""

    aside: tuple[int, ...]
    """At SET_ASIDE_LEVEL."""
    wild: tuple[int, ...]
    """At VARIANTS_LEVEL."""


def outliers_of_each(table: Numbers) -> list[Outliers]:
    """Return for each row as the baseline which of the others vary more, as `contrasts` finds them.

    The steps of many baselines are taken at once, which takes a small part of the time of one after another.
    """
    rows, pairs = table.shape
    degrees, steps = pairs - 1, min((rows - 1) // 2, rows - 3)
    if steps < 1:
        return [Outliers((), ())] * rows
    rest = table - table.mean(axis=1, keepdims=True)
    # Around the medians: one that varies beyond all measure does not make large numbers of the others.
    rest -= np.median(rest, axis=0)
    squares = np.einsum("ij,ij->i", rest, rest)
    order = np.argsort(-squares, kind="stable")
    farthest_first = np.column_stack([rest, squares])[order]
    parts = [
        _farthest(farthest_first, np.arange(rows)[i : i + _BASELINES], steps)
        for i in range(0, rows, _BASELINES)
    ]
    out, most, of_others = (np.hstack(part) for part in zip(*parts, strict=True))
    number = (rows - 1 - np.arange(steps, dtype=float))[:, None]
    ps = mean_square_ps(most / degrees * number / (number - 1), degrees, of_others, (number - 2) * degrees)

    def beyond(level: float) -> list[tuple[int, ...]]:
        found = ps < level / number
        # the last step that is significant, from the end: all before it are wild too (Rosner 1983)
        last = np.where(found.any(axis=0), steps - found[::-1].argmax(axis=0), 0)
        wild = {i: order[out[: last[place], place]] for place, i in enumerate(order.tolist())}
        # counted without the baseline: those behind it move up by one
        return [tuple(sorted((wild[i] - (wild[i] > i)).tolist())) for i in range(rows)]

    aside = beyond(SET_ASIDE_LEVEL) if pairs >= SET_ASIDE_SEEDS else [()] * rows
    return list(map(Outliers, aside, beyond(VARIANTS_LEVEL)))


# Baselines and rows that are looked at together: products that one core has in its cache, and that no
# library shares out among threads, which wait for one another on a machine with other work.
_BASELINES, _ROWS = 256, 32


def _farthest(
    rows: Numbers, baselines: NDArray[np.int_], steps: int
) -> tuple[NDArray[np.int_], Numbers, Numbers]:
    """Return for each step and baseline the row farthest from the mean of those left, its squared distance,
    and the sum of squares of the others.

    `rows` end in their own square, the farthest from zero first: beyond some of the first that are left no
    row can be as far from the mean, so that these alone are looked at.
    """
    values, squares, each = rows[:, :-1], rows[:, -1], np.arange(len(baselines))
    # `tails[i]` is the sum of all rows from i on: what lies behind a window is added without being looked at.
    tails = np.vstack([rows[::-1].cumsum(axis=0)[::-1], np.zeros(rows.shape[1])])
    there = np.arange(len(rows)) != baselines[:, None]
    out = np.empty((steps, len(baselines)), dtype=int)
    most, of_others = np.empty((2, steps, len(baselines)))
    first, width = 0, _ROWS
    for step in range(steps):
        while not there[:, first].any():
            first += 1
        while True:
            end = first + width
            window, left = there[:, first:end], len(rows) - 1 - step
            sums = window.astype(float) @ rows[first:end] + tails[min(end, len(rows))]
            # a baseline behind the window is in its tail, but is no variant of its own table
            sums[baselines >= end] -= rows[baselines[baselines >= end]]
            means = sums[:, :-1] / left
            shifts = np.einsum("ij,ij->i", means, means)
            # |row - mean|² = |row|² + |mean|² - 2 row·mean, so that the products of all baselines are one
            apart = squares[first:end] + shifts[:, None] - 2 * (means @ values[first:end].T)
            apart[~window] = -np.inf
            place = apart.argmax(axis=1)
            farthest = apart[each, place]
            # |row - mean| is at most |row| + |mean|, and no later row is longer than the one at `end`
            if end >= len(rows) or (farthest >= (math.sqrt(squares[end]) + np.sqrt(shifts)) ** 2).all():
                break
            width *= 2
        out[step], most[step] = first + place, np.maximum(farthest, 0.0)
        # k/(k-1) of its square is what the sum of squares around the mean loses with the row
        of_it = left / (left - 1) * most[step]
        of_others[step] = np.maximum(sums[:, -1] - left * shifts - of_it, 0.0)
        there[each, out[step]] = False
    return out, most, of_others


def _errors(
    layout: _Layout, aside: tuple[int, ...], own: Sequence[float], wild: tuple[int, ...] | None
) -> list[_Error]:
    """Return the error of each comparison: the pool's, or that of its own pairs where the variant was left
    out.
    """
    left_out = set(aside)
    kept = [i for i in range(layout.others) if i not in left_out]
    of_kept = iter(_errors_of_kept(layout.keeping(kept), [own[i] for i in kept], wild))
    return [
        _by_pairs(layout, variance, "variant_apart") if i in left_out else next(of_kept)
        for i, variance in enumerate(own)
    ]


def _errors_of_kept(
    layout: _Layout, own: Sequence[float], wild: tuple[int, ...] | None = None
) -> list[_Error]:
    n, m = layout.pairs, layout.others
    # Without residuals, there is nothing to pool or to test.
    # `rounding` bounds a variance, `total` is a sum of m·n squares
    if m == 1 or layout.total <= layout.rounding * m * n:
        return _by_own_pairs(layout, own)
    if layout.cells:
        plot = split_plot(layout.table, layout.cells, layout.rounding)
        if plot is not None and not plot.alike:
            return _by_strata(layout, plot, own)
        if plot is None and moves_with_an_axis(layout.table, layout.cells):
            return _by_own_pairs(layout, own)
    # The tests further down compare a variant with the others without the baseline, which takes three.
    if m == 2:
        if any(_pairs_vary_more(layout, variance) for variance in own):
            return _by_own_pairs(layout, own)
        return [_pool(layout)] * m
    ps = _ps_of_more(layout)
    if min(ps) < VARIANTS_LEVEL / m or _vary_unlike(layout.table[1:]):
        return _each_apart(layout, own, _wild(layout, VARIANTS_LEVEL) if wild is None else wild)
    pool = _pool(layout)
    return [
        _by_pairs(layout, variance, "variant_apart") if p < OWN_PAIRS_LEVEL and variance > pool[0] else pool
        for p, variance in zip(ps, own, strict=True)
    ]


def _by_strata(layout: _Layout, plot: SplitPlot, own: Sequence[float]) -> list[_Error]:
    """Return errors from the strata each comparison lies in, or from its own pairs where these vary more."""
    rows = layout.others + 1
    baseline = [float(i == 0) - 1 / rows for i in range(rows)]
    beside = float((np.asarray(baseline) @ layout.table).var(ddof=1))
    if _varies_more(beside, layout, plot.error(baseline), BASELINE_LEVEL):
        return _by_own_pairs(layout, own)
    errors = plot.errors_of_rows()
    return [
        _by_pairs(layout, variance, "variant_apart")
        if _too_much(variance, layout, error)
        else (*_at_least(error, layout), 0.0, "split_plot")
        for variance, error in zip(own, errors, strict=True)
    ]


def _too_much(own: float, layout: _Layout, error: tuple[float, float]) -> bool:
    """Return whether a contrast's own values vary more than its strata explain."""
    return own > error[0] and _varies_more(own, layout, error, OWN_PAIRS_LEVEL)


def _at_least(error: tuple[float, float], layout: _Layout) -> tuple[float, float]:
    return error if error[0] > layout.rounding else (0.0, layout.pairs - 1)


def _varies_more(own: float, layout: _Layout, error: tuple[float, float], level: float) -> bool:
    variance, degrees = error
    return mean_square_p(own, layout.pairs - 1, variance * degrees, degrees) < level


def _by_own_pairs(layout: _Layout, own: Sequence[float]) -> list[_Error]:
    return [_by_pairs(layout, variance, "paired") for variance in own]


def _by_pairs(layout: _Layout, variance: float, method: str) -> _Error:
    return variance, layout.pairs - 1, 0.0, method


def _pool(layout: _Layout) -> _Error:
    return _baseline_apart(layout) if _baseline_varies_more(layout) else layout.pooled()


def _each_apart(layout: _Layout, own: Sequence[float], wild: tuple[int, ...]) -> list[_Error]:
    """Return for each variant its own variance, compared as independent groups are (Welch 1947).

    Outliers keep their own pairs: next to them, all others would seem to vary alike.
    """
    n = layout.pairs
    errors = [_by_pairs(layout, variance, "variant_apart") for variance in own]
    quiet = [i for i in range(layout.others) if i not in wild]
    base, *others = _own_variances(layout.keeping(quiet).table).tolist()
    for i, variance in zip(quiet, others, strict=True):
        both = variance + base
        degrees = both**2 / ((variance**2 + base**2) / (n - 1)) if both > layout.rounding else n - 1
        errors[i] = (both if both > layout.rounding else 0.0, degrees, 0.0, "each_apart")
    return errors


def _own_variances(table: Numbers) -> Numbers:
    """Return the variance of each row minus the mean of the others: unbiased where all vary alike, close to
    it otherwise.
    """
    rows = len(table)
    less_mean = table - (table.sum(axis=0) - table) / (rows - 1)
    # The mean of the others adds 1/(rows - 1) of their variance, which the factor takes out again.
    found: Numbers = less_mean.var(axis=1, ddof=1) * (rows - 1) / rows
    return found


def _baseline_apart(layout: _Layout) -> _Error:
    """Return the error with a variance of the baseline's own and a pooled one of the others (Satterthwaite
    1946).
    """
    n, m = layout.pairs, layout.others
    rest = layout.within / ((m - 1) * (n - 1))
    # The mean of the m others has 1/m of their variance, so (m-1)/m of it is missing from a difference.
    alone = float((layout.table[0] - layout.table[1:].mean(axis=0)).var(ddof=1))
    share = (m - 1) / m * rest
    variance = alone + share
    degrees = variance**2 / (alone**2 / (n - 1) + share**2 / ((m - 1) * (n - 1)))
    # 0.5 is that of equal variances; beyond 0.94 the grid of `largest_t_p` is too coarse for an error below
    # 1e-8, and a lower correlation only widens the interval.
    correlation = min(0.94, max(0.5, (variance - rest) / variance))
    return variance, degrees, correlation, "baseline_apart"


def _baseline_varies_more(layout: _Layout) -> bool:
    n, m = layout.pairs, layout.others
    # Its distance from the mean of the m others has variance s² (1 + 1/m) where all vary alike.
    alone = float((layout.table[0] - layout.table[1:].mean(axis=0)).var(ddof=1)) * m / (m + 1)
    return mean_square_p(alone, n - 1, layout.within, (m - 1) * (n - 1)) < BASELINE_LEVEL


def _ps_of_more(layout: _Layout) -> Numbers:
    """Return the p value of each variant varying more than the others; three or more variants, baseline
    excluded.
    """
    n, m = layout.pairs, layout.others
    alone = _own_variances(layout.table[1:])
    return mean_square_ps(alone, n - 1, layout.within - alone * (n - 1), (m - 2) * (n - 1))


def _vary_unlike(table: Numbers) -> bool:
    """Return whether Bartlett's test (1937) rejects equal variances; three rows or more."""
    own, degrees = _own_variances(table), table.shape[1] - 1
    if own.min() <= 0:
        return True
    rows = len(own)
    statistic = rows * degrees * math.log(own.mean()) - degrees * float(np.log(own).sum())
    # the rows have equal degrees, so that the sum of 1/f less 1/(sum of f) is (k - 1/k)/f
    correction = 1 + (rows - 1 / rows) / (3 * (rows - 1) * degrees)
    return chi_square_p(statistic / correction, rows - 1) < ALIKE_LEVEL


def _pairs_vary_more(layout: _Layout, own: float) -> bool:
    """Return whether one of two variants varies more, judged by its pairs with the baseline."""
    # Its contrast (variant - baseline) / sqrt 2 takes n - 1 of the 2 (n - 1) degrees of the residuals.
    alone, n = own / 2, layout.pairs
    return mean_square_p(alone, n - 1, layout.total - alone * (n - 1), n - 1) < VARIANTS_LEVEL / 2


def _rounding(table: Numbers) -> float:
    return (_ROUNDING * float(np.abs(table).max())) ** 2


def _residual(table: Numbers) -> float:
    return float((_centered(table) ** 2).sum())


def _centered(table: Numbers) -> Numbers:
    rest: Numbers = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    return rest
