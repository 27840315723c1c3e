"""The most power that any test can have whose false claims stay at 5 % when the baseline varies more.

python benchmarks/power_bound.py [MATRICES] [axes]

Every variant is compared with one baseline, by |difference| / (s * sqrt(1 / seeds)) > q(F): s² is what varies
among the other variants, F the baseline's own variance over s². The function q is free. A linear program
picks the one that finds most differences of 2 standard deviations where all vary alike, while false claims
(family-wise) stay at 5 % for every ratio of the baseline's standard deviation in RATIOS. Printed beside
analysis of variance with Dunnett's comparisons, which takes it for granted that all vary alike.

With `axes` it is the same for the main effect of an axis of two levels: F is then the mean square of seed x
axis over that of all other strata, and false claims stay at the share of 5 % that one comparison of the
family has, whatever that axis makes of the runs of a seed. Beside it the right model, which is told that F
is 1.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linprog
from scipy.stats import nct, t

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEEDS = 5
EFFECT = 2.0
ALLOWED = 0.05
RATIOS = (1, 1.5, 2, 2.5, 3, 4, 6, 10)
AXES = ((2, 2), (3, 2), (3, 3, 2))
EFFECT_OF_AXIS = {3: 4.0, 5: 2.5}
"""True effect by number of seeds, as in factorial.py."""
EDGES_OF_AXIS = np.concatenate([[0.0], np.geomspace(0.02, 60, 60), [np.inf]])
LIMITS_OF_AXIS = np.geomspace(0.3, 120, 200)
EDGES = np.concatenate([[0.0], np.geomspace(0.4, 16, 22), [np.inf]])
"""Edges of the bins of F: q is one number in each."""
LIMITS = np.geomspace(2, 40, 160)
"""Values that q may take."""
DRAWN = 1_000_000
"""Families of comparisons whose largest |t| has the critical value."""


@dataclass(frozen=True)
class Tables:
    """Many simulated matrices, seeds as columns, the baseline first."""

    values: NDArray[np.float64]

    @property
    def others(self) -> int:
        return len(self.values[0]) - 1

    @property
    def differences(self) -> NDArray[np.float64]:
        """Differences of each variant from the baseline, times sqrt(seeds)."""
        means = self.values.mean(axis=2)
        found: NDArray[np.float64] = (means[:, 1:] - means[:, :1]) * np.sqrt(SEEDS)
        return found

    def variances(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Variances of the others (variant and seed taken out), and the baseline's over it (F)."""
        others, m = self.values[:, 1:], self.others
        centered = others - others.mean(axis=1, keepdims=True)
        within = (centered - centered.mean(axis=2, keepdims=True)) ** 2
        rest = within.sum(axis=(1, 2)) / ((m - 1) * (SEEDS - 1))
        alone = (self.values[:, 0] - others.mean(axis=1)).var(axis=1, ddof=1) * m / (m + 1)
        return rest, alone / rest


def main(argv: list[str]) -> int:
    """Print the bound beside the power of an analysis of variance."""
    numbers = [word for word in argv if word.isdecimal()]
    count = int(numbers[0]) if numbers else 60_000
    if "axes" in argv:
        return main_effects(count)
    print(f"a difference of {EFFECT:g} sd found, {SEEDS} seeds, {count:,} matrices")
    print(f"{'variants':>8} {'bound':>7} {'ANOVA + Dunnett':>16} {'ratio':>6}")
    for k in (6, 10):
        rng = np.random.default_rng(k)
        better = rng.normal(size=(count, k, SEEDS))
        better[:, -1] += EFFECT
        bound, usual = most(rng, Tables(better), count), pooled_power(Tables(better))
        print(f"{k:8} {100 * bound:7.1f} {100 * usual:16.1f} {bound / usual:6.2f}", flush=True)
    return 0


def main_effects(count: int) -> int:
    """Print the bound of each design beside the power of the right model."""
    print(f"{'axes':>8} {'seeds':>5} {'sd':>4} {'bound':>7} {'right model':>12}   {count:,} matrices")
    for seeds, effect in EFFECT_OF_AXIS.items():
        for levels in AXES:
            rng = np.random.default_rng([seeds, *levels])
            rows = math.prod(levels)
            # in standard errors of the difference of two means, each of half of the runs
            design = MainEffect(rng, count, seeds - 1, (rows - 2) * (seeds - 1))
            distance = effect / math.sqrt(4 / rows / seeds)
            share = ALLOWED / (rows - 1 + sum(levels) - len(levels))
            found = design.beyond(1.0, distance)
            wrong = [design.beyond(ratio, 0.0) for ratio in RATIOS]
            bound, usual = largest_share(found, wrong, share), design.right_power(distance, share)
            name = "x".join(map(str, levels))
            print(f"{name:>8} {seeds:5} {effect:4} {100 * bound:7.1f} {100 * usual:12.1f}", flush=True)
    return 0


@dataclass(frozen=True)
class MainEffect:
    """All that a matrix says of a main effect of two levels: a difference and two mean squares."""

    rng: np.random.Generator
    count: int
    own: int
    """Degrees of freedom of seed x axis."""
    rest: int
    """Those of the other strata, which vary alike."""

    def beyond(self, ratio: float, distance: float) -> NDArray[np.float64]:
        """Return shares as `beyond` does; `ratio` is seed x axis over the other strata, as deviations."""
        difference = np.abs(self.rng.normal(distance, ratio, self.count))
        own = ratio**2 * self.rng.chisquare(self.own, self.count) / self.own
        rest = self.rng.chisquare(self.rest, self.count) / self.rest
        return shares_beyond(difference / np.sqrt(rest), own / rest, EDGES_OF_AXIS, LIMITS_OF_AXIS)

    def right_power(self, distance: float, share: float) -> float:
        degrees = self.own + self.rest
        return float(nct.sf(t.isf(share / 2, degrees), degrees, distance))


def most(rng: np.random.Generator, better: Tables, count: int) -> float:
    """The power of the best q."""
    wrong = []
    for ratio in RATIOS:
        values = rng.normal(size=(count, better.others + 1, SEEDS))
        values[:, 0] *= ratio
        tables = Tables(values)
        wrong.append(beyond(tables, np.abs(tables.differences).max(axis=1)))
    return largest_share(beyond(better, better.differences[:, -1]), wrong, ALLOWED)


def largest_share(found: NDArray[np.float64], wrong: Sequence[NDArray[np.float64]], allowed: float) -> float:
    """Return what the best q finds, by linear programming over bins and limits, randomized ones allowed."""
    bins, limits = found.shape
    one_limit_a_bin = np.kron(np.eye(bins), np.ones(limits))
    solved = linprog(
        -found.ravel(),
        A_ub=np.array([one.ravel() for one in wrong]),
        b_ub=np.full(len(wrong), allowed),
        A_eq=one_limit_a_bin,
        b_eq=np.ones(bins),
        bounds=(0, 1),
        method="highs",
    )
    if not solved.success:
        sys.exit(f"error: {solved.message}")
    return float(-solved.fun)


def beyond(tables: Tables, statistic: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of all matrices in each bin of F (rows) whose statistic is beyond each limit (columns)."""
    rest, ratio = tables.variances()
    return shares_beyond(statistic / np.sqrt(rest), ratio, EDGES, LIMITS)


def shares_beyond(
    statistic: NDArray[np.float64],
    ratio: NDArray[np.float64],
    edges: NDArray[np.float64],
    limits: NDArray[np.float64],
) -> NDArray[np.float64]:
    bins = np.digitize(ratio, edges) - 1
    shares = np.zeros((len(edges) - 1, len(limits)))
    for i in range(len(shares)):
        here = np.sort(statistic[bins == i])
        shares[i] = (len(here) - np.searchsorted(here, limits)) / len(statistic)
    return shares


def pooled_power(tables: Tables) -> float:
    """Power by the residual of variant + seed and the critical value of Dunnett (1955), by simulation."""
    m = tables.others
    rest, ratio = tables.variances()
    degrees = m * (SEEDS - 1)
    pooled = rest * ((m - 1) * (SEEDS - 1) + (SEEDS - 1) * ratio) / degrees
    return float((tables.differences[:, -1] > critical(m, degrees) * np.sqrt(2 * pooled)).mean())


def critical(comparisons: int, degrees: int) -> float:
    """The 95 % quantile of the largest |t| of comparisons with one baseline."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(DRAWN, comparisons + 1))
    error = np.sqrt(rng.chisquare(degrees, len(means)) / degrees)
    largest = np.abs(means[:, 1:] - means[:, :1]).max(axis=1) / np.sqrt(2) / error
    return float(np.quantile(largest, 0.95))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
