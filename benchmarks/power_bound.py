"""The most power that any test can have whose false claims stay at 5 % when the baseline varies more.

python benchmarks/power_bound.py [MATRICES]

Every variant is compared with one baseline, by |difference| / (s * sqrt(1 / seeds)) > q(F): s² is what varies
among the other variants, F the baseline's own variance over s². The function q is free. A linear program
picks the one that finds most differences of 2 standard deviations where all vary alike, while false claims
(family-wise) stay at 5 % for every ratio of the baseline's standard deviation in RATIOS. Printed beside
analysis of variance with Dunnett's comparisons, which takes it for granted that all vary alike.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linprog

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEEDS = 5
EFFECT = 2.0
ALLOWED = 0.05
RATIOS = (1, 1.5, 2, 2.5, 3, 4, 6, 10)
EDGES = np.concatenate([[0.0], np.geomspace(0.4, 16, 22), [np.inf]])
"""Of the bins of F: q is one number in each."""
LIMITS = np.geomspace(2, 40, 160)
"""That q may take."""


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
    count = int(argv[0]) if argv else 60_000
    print(f"a difference of {EFFECT:g} sd found, {SEEDS} seeds, {count:,} matrices")
    print(f"{'variants':>8} {'bound':>7} {'ANOVA + Dunnett':>16} {'ratio':>6}")
    for k in (6, 10):
        rng = np.random.default_rng(k)
        better = rng.normal(size=(count, k, SEEDS))
        better[:, -1] += EFFECT
        bound, usual = most(rng, Tables(better), count), pooled_power(Tables(better))
        print(f"{k:8} {100 * bound:7.1f} {100 * usual:16.1f} {bound / usual:6.2f}", flush=True)
    return 0


def most(rng: np.random.Generator, better: Tables, count: int) -> float:
    """The power of the best q, by linear programming over bins of F and limits, randomized ones allowed."""
    wrong = []
    for ratio in RATIOS:
        values = rng.normal(size=(count, better.others + 1, SEEDS))
        values[:, 0] *= ratio
        tables = Tables(values)
        wrong.append(beyond(tables, np.abs(tables.differences).max(axis=1)).ravel())
    found = beyond(better, better.differences[:, -1])
    bins, limits = found.shape
    one_limit_a_bin = np.kron(np.eye(bins), np.ones(limits))
    solved = linprog(
        -found.ravel(),
        A_ub=np.array(wrong),
        b_ub=np.full(len(RATIOS), ALLOWED),
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
    statistic = statistic / np.sqrt(rest)
    bins = np.digitize(ratio, EDGES) - 1
    shares = np.zeros((len(EDGES) - 1, len(LIMITS)))
    for i in range(len(shares)):
        here = np.sort(statistic[bins == i])
        shares[i] = (len(here) - np.searchsorted(here, LIMITS)) / len(statistic)
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
    means = rng.normal(size=(1_000_000, comparisons + 1))
    error = np.sqrt(rng.chisquare(degrees, len(means)) / degrees)
    largest = np.abs(means[:, 1:] - means[:, :1]).max(axis=1) / np.sqrt(2) / error
    return float(np.quantile(largest, 0.95))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
