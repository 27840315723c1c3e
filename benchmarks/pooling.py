"""Whose error a comparison is judged by, when not all variants vary alike: the report's way and others.

python benchmarks/pooling.py [MATRICES] [VARIANTS SEEDS]

Matrices without any difference, normal numbers, one look at 95 %. For each way: how many of MATRICES (default
1,000) have a comparison whose interval leaves out the truth (an interval moves with the difference, so that
is one less the coverage of all intervals together), and how many find that the first variant after the
baseline is better by EFFECT[SEEDS] deviations. Ways:

- `report`: as docs/statistics.md has it, here for many tables at once, and held to the report's own code
- `no aside`: the same, but no variant is set aside or judged by its own pairs: one that varies more takes the
  pool from all others
- `aside 10 %`: variants are set aside by the level at which they are found to vary more at all
- `each apart`: Welch's test for each with Bonferroni's inequality, near Games-Howell and Dunnett's T3 (1980)
- `sandwich`: a variance each, and the critical value of a pooled one (Herberich, Sikorski, Hothorn 2010)
- `moderated`: variances shrunk to a common one by empirical Bayes (Smyth 2004, limma's squeezeVar)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.special import chdtrc, digamma, fdtrc, polygamma, stdtrit

from kharness.report.judging import blocks
from kharness.report.judging.statistics import largest_t, t_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Flags = NDArray[np.bool_]

ALPHA = 0.05
EFFECT = {3: 5.0, 5: 3.0, 10: 2.0}
"""The first variant's effect by number of seeds, in mean deviations of it and the baseline."""
SIZES = ((4, 5), (6, 5), (14, 5), (4, 3), (6, 3), (14, 3), (14, 10))
"""Variants with the baseline, seeds."""
CHECKED = 20
"""Tables of each scenario that the report's own code judges too."""


def one(factor: float, place: int = -1) -> Callable[[int], Numbers]:
    def deviations(k: int) -> Numbers:
        found = np.ones(k)
        found[place] = factor
        return found

    return deviations


def all_but_last(deviations: Callable[[int], Numbers], last: float) -> Callable[[int], Numbers]:
    return lambda k: np.append(deviations(k)[:-1], last)


# The standard deviations of so many variants, the baseline first.
SCENARIOS: dict[str, Callable[[int], Numbers]] = {
    "alike": np.ones,
    "one x 2": one(2),
    "one x 3": one(3),
    "one x 4": one(4),
    "one x 10": one(10),
    "two x 4": lambda k: np.where(np.arange(k) >= k - 2, 4.0, 1.0),
    "two x 10": lambda k: np.where(np.arange(k) >= k - 2, 10.0, 1.0),
    "baseline x 2": one(2, 0),
    "baseline x 4": one(4, 0),
    "baseline x 2, one x 10": all_but_last(one(2, 0), 10),
    "1 to 3": lambda k: np.linspace(1, 3, k),
    "3 to 1": lambda k: np.linspace(3, 1, k),
    "1 to 3, one x 20": all_but_last(lambda k: np.linspace(1, 3, k), 20),
    "every other x 3": lambda k: np.where(np.arange(k) % 2, 1.0, 3.0),
}


@dataclass(frozen=True)
class Tables:
    """Many matrices (matrix, variant, seed), the baseline first, and which variants are in the pool."""

    values: Numbers
    kept: Flags
    """Flags by matrix and variant."""

    @property
    def seeds(self) -> int:
        return len(self.values[0, 0])

    @property
    def others(self) -> int:
        return len(self.values[0]) - 1

    @property
    def differences(self) -> Numbers:
        return self.values[:, 1:] - self.values[:, :1]

    @property
    def kept_others(self) -> Flags:
        return self.kept & (np.arange(self.others + 1) > 0)

    def residual(self, kept: Flags) -> Numbers:
        """The sum of squares of variant + seed."""
        weight = kept[:, :, None]
        mean = (self.values * weight).sum(axis=1, keepdims=True) / kept.sum(axis=1)[:, None, None]
        rest = (self.values - mean) * weight
        found: Numbers = ((rest - rest.mean(axis=2, keepdims=True)) ** 2).sum(axis=(1, 2))
        return found

    def own(self, kept: Flags) -> Numbers:
        """Variance (ddof 1) of each variant less the mean of the others."""
        number = kept.sum(axis=1)[:, None, None]
        total = (self.values * kept[:, :, None]).sum(axis=1, keepdims=True)
        less = self.values - (total - self.values) / (number - 1)
        found: Numbers = less.var(axis=2, ddof=1) * ((number - 1) / number)[:, :, 0]
        return found

    def beside(self) -> Numbers:
        """Variance (ddof 1) of the baseline less the mean of the others."""
        kept = self.kept_others
        mean = (self.values * kept[:, :, None]).sum(axis=1) / kept.sum(axis=1)[:, None]
        found: Numbers = (self.values[:, 0] - mean).var(axis=1, ddof=1)
        return found

    def ps_of_more(self) -> Numbers:
        """P values of each variant varying more than the others; 1 for those that are not kept."""
        kept, n = self.kept_others, self.seeds
        own, number = self.own(kept), kept.sum(axis=1)[:, None]
        rest = self.residual(kept)[:, None] - own * (n - 1)
        degrees = np.maximum(number - 2, 1) * (n - 1)
        rest = np.where(kept & (number > 2), rest, 1.0)
        ratio = own * degrees / rest
        return np.where(kept, fdtrc(n - 1, degrees, ratio), 1.0)


Halves = tuple["Numbers", "Numbers"]
"""Standard error and critical value of each comparison."""


def main(argv: list[str]) -> int:
    """Print a table for each size."""
    count = int(argv[0]) if argv else 1000
    sizes = [(int(argv[1]), int(argv[2]))] if len(argv) > 2 else SIZES
    for k, n in sizes:
        print(f"{k} variants, {n} seeds, {count:,} matrices: % wrong, % found of {EFFECT[n]:g} deviations")
        print(f"{'':24}" + "".join(f"{way:>14}" for way in WAYS))
        for name, deviations in SCENARIOS.items():
            sd = deviations(k)
            rng = np.random.default_rng([k, n, *name.encode()])
            values = rng.normal(size=(count, k, n)) * sd[:, None]
            tables = Tables(values, np.ones((count, k), dtype=bool))
            effect = EFFECT[n] * np.sqrt((sd[0] ** 2 + sd[1] ** 2) / 2)
            cells = "".join(f"{shares(tables, way, effect):>14}" for way in WAYS.values())
            print(f"{name:24}{cells}", flush=True)
    return 0


def shares(tables: Tables, way: Callable[[Tables], Numbers], effect: float) -> str:
    """`4.9  86`: wrong, found."""
    half, mean = way(tables), tables.differences.mean(axis=2)
    wrong = (np.abs(mean) > half).any(axis=1).mean()
    found = (mean[:, 0] + effect > half[:, 0]).mean()
    return f"{100 * wrong:.1f} {100 * found:4.0f}"


def report(tables: Tables) -> Numbers:
    """Half of each interval, and the same of the first tables by the report."""
    seeds = tables.seeds
    level = blocks.SET_ASIDE_LEVEL if seeds >= blocks.SET_ASIDE_SEEDS else 0.0
    half = pooled(
        tables,
        aside=level,
        wild=blocks.VARIANTS_LEVEL,
        own_pairs=blocks.OWN_PAIRS_LEVEL,
        share=blocks.SET_ASIDE_SHARE,
    )
    for table, found in zip(tables.values[:CHECKED].tolist(), half[:CHECKED], strict=False):
        expected = [reported(contrast) for contrast in blocks.contrasts(table)]
        if not np.allclose(found, expected, rtol=0.005):
            sys.exit(f"error: the report's intervals are {expected}, not {found.tolist()}")
    return half


def reported(one: blocks.Contrast) -> float:
    critical = largest_t(one.together, one.degrees, ALPHA * one.share, correlation=one.correlation)
    guard = t_quantile(one.pairs - 1, 1 - ALPHA) * one.own_standard_error
    return max(critical * one.standard_error, guard)


def pooled(tables: Tables, *, aside: float, wild: float, own_pairs: float, share: float) -> Numbers:
    """Half of each interval; variants are set aside at one level, and have their own pairs at others: `wild`
    beside variants that vary unlike, `own_pairs` beside a pool.
    """
    tables = without_aside(tables, aside)
    own = tables.differences.var(axis=2, ddof=1)
    error, critical = np.sqrt(own / tables.seeds), np.zeros(own.shape)
    numbers = tables.kept_others.sum(axis=1)
    for number in np.unique(numbers).tolist():
        here = numbers == number
        alpha = ALPHA * (share if number < tables.others else 1)
        part = Tables(tables.values[here], tables.kept[here])
        error[here], critical[here] = of_pools(part, number, wild, own_pairs, alpha)
    guard = -stdtrit(tables.seeds - 1, ALPHA / 2) * np.sqrt(own / tables.seeds)
    found: Numbers = np.maximum(error * critical, guard)
    return found


def without_aside(tables: Tables, level: float) -> Tables:
    """The most that one after another leaves out, up to half, and the last of them is found to vary more."""
    left, kept, rows = tables.kept.copy(), tables.kept.copy(), np.arange(len(tables.kept))
    most = (tables.kept.sum(axis=1) - 1) // 2
    for out in range(1, int(most.max(initial=0)) + 1 if level else 1):
        ps, number = replace(tables, kept=left).ps_of_more(), left.sum(axis=1) - 1
        worst = ps.argmin(axis=1)
        possible = (number > 2) & (out <= most)
        hit = possible & (ps[rows, worst] < level / number)
        left[rows[possible], worst[possible]] = False
        kept[hit] = left[hit]
    return replace(tables, kept=kept)


def of_pools(tables: Tables, number: int, wild: float, own_pairs: float, alpha: float) -> Halves:
    """Where so many variants besides the baseline are left in the pool."""
    n, m = tables.seeds, tables.others
    own = tables.differences.var(axis=2, ddof=1)
    error = np.sqrt(own / n)
    critical = np.full(error.shape, bonferroni(m, np.array(n - 1.0), alpha))
    if number == 1:
        return error, critical
    unlike, by_pairs = alike(tables, number, own_pairs)
    if number > 2:
        quiet = without_aside(tables, wild)
        e, c = each_apart_of(quiet, alpha)
        chosen = unlike[:, None] & quiet.kept[:, 1:]
        error[chosen], critical[chosen] = e[chosen], c[chosen]
    variance, degrees, correlation = pool(tables, number)
    by_pairs &= own > variance[:, None]
    share = tables.kept[:, 1:] & ~unlike[:, None] & ~by_pairs
    together = share.sum(axis=1)
    for size in np.unique(together[together > 0]).tolist():
        rows = together == size
        limit = dunnett(size, degrees[rows], correlation[rows], alpha * size / m, n)
        error[rows] = np.where(share[rows], np.sqrt(variance[rows] / n)[:, None], error[rows])
        critical[rows] = np.where(share[rows], limit[:, None], critical[rows])
    return error, critical


def alike(tables: Tables, number: int, own_pairs: float) -> tuple[Flags, Flags]:
    """Whether the variants of a table vary unlike, and which of them are judged by their own pairs."""
    n, kept = tables.seeds, tables.kept_others
    if number == 2:
        half = tables.differences.var(axis=2, ddof=1) / 2
        ratio = half / (tables.residual(tables.kept)[:, None] / (n - 1) - half)
        unlike = (fdtrc(n - 1, n - 1, ratio) < blocks.VARIANTS_LEVEL / 2) & tables.kept[:, 1:]
        return unlike.any(axis=1), np.zeros(unlike.shape, dtype=bool)
    ps, own = tables.ps_of_more(), np.where(kept, tables.own(kept), 1.0)
    mean = np.where(kept, own, 0).sum(axis=1) / number
    statistic = number * (n - 1) * np.log(mean) - (n - 1) * np.log(own).sum(axis=1)
    correction = 1 + (number - 1 / number) / (3 * (number - 1) * (n - 1))
    bartlett = chdtrc(number - 1, statistic / correction) < blocks.ALIKE_LEVEL
    unlike = (ps < blocks.VARIANTS_LEVEL / number).any(axis=1) | bartlett
    return unlike, ps[:, 1:] < own_pairs


def pool(tables: Tables, number: int) -> tuple[Numbers, Numbers, Numbers]:
    """The variance of a difference by the pool, its degrees of freedom, and the correlation."""
    n, freedom = tables.seeds, (number - 1) * (tables.seeds - 1)
    within, alone = tables.residual(tables.kept_others) / freedom, tables.beside()
    more = fdtrc(n - 1, freedom, alone * number / (number + 1) / within) < blocks.BASELINE_LEVEL
    rest = (number - 1) / number * within
    degrees = (alone + rest) ** 2 / (alone**2 / (n - 1) + rest**2 / freedom)
    correlation = np.clip((alone + rest - within) / (alone + rest), 0.5, 0.94)
    all_freedom = number * (n - 1)
    return (
        np.where(more, alone + rest, 2 * tables.residual(tables.kept) / all_freedom),
        np.where(more, degrees, all_freedom),
        np.where(more, correlation, 0.5),
    )


def each_apart_of(tables: Tables, alpha: float) -> Halves:
    own = tables.own(tables.kept)
    return welch(own, np.full(own.shape, tables.seeds - 1.0), tables, alpha)


def welch(variances: Numbers, freedom: Numbers, tables: Tables, alpha: float) -> Halves:
    base, others = variances[:, :1], variances[:, 1:]
    degrees = (base + others) ** 2 / (base**2 / freedom[:, :1] + others**2 / freedom[:, 1:])
    return np.sqrt((base + others) / tables.seeds), bonferroni(tables.others, degrees, alpha)


def each_apart(tables: Tables) -> Numbers:
    error, critical = each_apart_of(tables, ALPHA)
    return error * critical


def sandwich(tables: Tables) -> Numbers:
    error, _ = each_apart_of(tables, ALPHA)
    m, n = tables.others, tables.seeds
    return error * dunnett(m, np.array([m * (n - 1.0)]), np.array([0.5]), ALPHA, n)


def moderated(tables: Tables) -> Numbers:
    """The scaled F distribution of the variances by their logarithms' moments (Smyth 2004, section 6.2)."""
    own, freedom, k = tables.own(tables.kept), tables.seeds - 1, tables.others + 1
    logs = np.log(own) - digamma(freedom / 2) + np.log(freedom / 2)
    spread = logs.var(axis=1, ddof=1) - polygamma(1, freedom / 2)
    prior = np.where(spread > 0, 2 * trigamma_inverse(np.where(spread > 0, spread, 1.0)), np.inf)
    finite = np.where(spread > 0, prior, 2.0)
    shift = np.where(spread > 0, digamma(finite / 2) - np.log(finite / 2), 0.0)
    common = np.exp(logs.mean(axis=1) + shift)[:, None]
    weight = np.minimum(prior, (k - 1.0) * freedom)[:, None]
    variances = (weight * common + freedom * own) / (weight + freedom)
    error, critical = welch(variances, np.broadcast_to(weight + freedom, own.shape), tables, ALPHA)
    return error * critical


def trigamma_inverse(values: Numbers) -> Numbers:
    """Newton's method on the reciprocal (Smyth 2004, appendix)."""
    found = 0.5 + 1 / values
    for _ in range(30):
        trigamma = polygamma(1, found)
        found = found + trigamma * (1 - trigamma / values) / polygamma(2, found)
    return found


def bonferroni(comparisons: int, degrees: Numbers, alpha: float) -> Numbers:
    found: Numbers = -stdtrit(degrees, alpha / comparisons / 2)
    return found


def dunnett(comparisons: int, degrees: Numbers, correlation: Numbers, alpha: float, seeds: int) -> Numbers:
    """largest_t between the points of a grid: each of them takes milliseconds."""
    if comparisons == 1:
        return bonferroni(1, degrees, alpha)
    # rounded as largest_t does
    size = 10.0 ** (np.floor(np.log10(degrees)) - 1)
    degrees = np.where(degrees % 1, np.floor(degrees / size) * size, degrees)
    correlation = np.floor(correlation * 20 + 1e-9) / 20
    found: Numbers = np.exp(limits(comparisons, round(alpha, 12), seeds).ev(1 / degrees, correlation))
    return found


@cache
def limits(comparisons: int, alpha: float, seeds: int) -> RectBivariateSpline:
    """The logarithm of the critical value, over one by the degrees of freedom and the correlation."""
    degrees = [one for one in (200, 40, 20, 13, 9, 6.5, 5, 4, 3.2, 2.5, 2) if one >= seeds - 1]
    correlations = [0.5, 0.65, 0.8, 0.9]
    grid = [
        [math.log(largest_t(comparisons, one, alpha, correlation=c)) for c in correlations] for one in degrees
    ]
    return RectBivariateSpline([1 / one for one in degrees], correlations, np.array(grid), kx=3, ky=3)


WAYS: dict[str, Callable[[Tables], Numbers]] = {
    "report": report,
    "no aside": partial(pooled, aside=0.0, wild=0.0, own_pairs=0.0, share=1.0),
    "aside 10 %": partial(pooled, aside=blocks.VARIANTS_LEVEL, wild=0.0, own_pairs=0.0, share=1.0),
    "each apart": each_apart,
    "sandwich": sandwich,
    "moderated": moderated,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
