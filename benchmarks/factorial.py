"""Matrices of several axes, whose runs of a seed may move together: how often a verdict is wrong.

python benchmarks/factorial.py [MATRICES] [AXES SEEDS]

Simulated runs = seed + seed x (some axes) + rest, without any difference, or with one of the last axis. Each
verdict counts, those of variants and those of main effects. Ways:

- `report`: the report's own code (blocks.py, factorial.py, evidence.py)
- `pooled`: one error for all, as if all runs of a seed were independent (variant + seed)
- `right model`: the split-plot analysis of variance that is told which strata vary alike; by projections that
  share no code with the report's

In each cell: the % of MATRICES (default 1,000) that claim something false; the % in which a difference of the
last axis (EFFECT deviations of the rest) is found as its main effect; and the same for one variant.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from kharness.report.judging.blocks import Contrast, contrasts, main_effect
from kharness.report.judging.evidence import Spending, of_contrast
from kharness.report.judging.statistics import largest_t

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

ALPHA = 0.05
EFFECT = {3: 4.0, 4: 3.0, 5: 2.5, 10: 1.5}
"""True effect by number of seeds."""
SIZES = ("2x2", "3x2", "3x3x2")
SEEDS = (3, 5)

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Design:
    """The variants that axes of so many levels make, the baseline first, and what is told about them."""

    levels: Axes

    @property
    def cells(self) -> list[Axes]:
        return [*itertools.product(*map(range, self.levels))]

    @property
    def last(self) -> int:
        return len(self.levels) - 1

    @property
    def mains(self) -> list[tuple[int, int]]:
        """Axis and level of each main effect; the first levels are the baseline's."""
        return [(axis, level) for axis, count in enumerate(self.levels) for level in range(1, count)]

    @property
    def weights(self) -> Numbers:
        """Weights of the variants less the baseline, then the main effects (contrast, variant)."""
        count = len(self.cells)
        rows = [np.eye(count)[i] - np.eye(count)[0] for i in range(1, count)]
        for axis, level in self.mains:
            of_axis = np.array([cell[axis] for cell in self.cells])
            rows.append(((of_axis == level) * 1.0 - (of_axis == 0)) / (of_axis == 0).sum())
        return np.array(rows)

    def strata(self) -> dict[Axes, Numbers]:
        """An orthonormal basis of each, by Gram and Schmidt from the means of all combinations of levels."""
        count = len(self.cells)
        known, found = np.full((count, 1), 1 / math.sqrt(count)), {}
        for order in range(1, len(self.levels) + 1):
            for axes in itertools.combinations(range(len(self.levels)), order):
                span = self.indicators(axes)
                span = span - known @ (known.T @ span)
                basis, sizes, _ = np.linalg.svd(span, full_matrices=False)
                found[axes] = basis[:, sizes > 1e-9]
                known = np.hstack([known, found[axes]])
        return found

    def indicators(self, axes: Axes) -> Numbers:
        keys = [tuple(cell[i] for i in axes) for cell in self.cells]
        return np.array([[key == one for one in dict.fromkeys(keys)] for key in keys], dtype=float)


@dataclass(frozen=True)
class Scenario:
    """Standard deviations, where that of the rest is 1."""

    moves: tuple[tuple[Axes, float], ...] = ()
    """Deviations of seed x axes, by the axes."""
    rows: tuple[tuple[int, float], ...] = ()
    """Deviations of the rest of some variants."""

    def draw(self, rng: np.random.Generator, design: Design, count: int, seeds: int) -> Numbers:
        deviations = np.ones(len(design.cells))
        for row, deviation in self.rows:
            deviations[row] = deviation
        found = rng.normal(size=(count, len(design.cells), seeds)) * deviations[:, None]
        for axes, deviation in self.moves:
            span = design.indicators(axes)
            found = found + deviation * (span @ rng.normal(size=(count, span.shape[1], seeds)))
        return found + rng.normal(size=(count, 1, seeds))


def scenarios(design: Design) -> dict[str, Scenario]:
    every, last = range(len(design.levels)), (design.last,)
    others = tuple(every[:-1])
    return {
        "independent": Scenario(),
        "seed x first axis, sd 1": Scenario((((0,), 1.0),)),
        "seed x last axis, sd 1": Scenario(((last, 1.0),)),
        "seed x each axis, sd 1": Scenario(tuple(((i,), 1.0) for i in every)),
        "seed x each axis, sd 3": Scenario(tuple(((i,), 3.0) for i in every)),
        "last axis inert": Scenario(((others, 10.0),)),
        "all but the last inert": Scenario(((last, 10.0),)),
        "one variant x 4": Scenario(rows=((len(design.cells) - 1, 4.0),)),
        "baseline x 2": Scenario(rows=((0, 2.0),)),
        "first axis, sd 3, one x 10": Scenario((((0,), 3.0),), ((len(design.cells) - 1, 10.0),)),
        "first axis, sd 3, baseline x 2": Scenario((((0,), 3.0),), ((0, 2.0),)),
    }


def main(argv: Sequence[str]) -> int:
    """Print a table for each design and number of seeds."""
    count = int(argv[0]) if argv else 1000
    sizes = [(argv[1], int(argv[2]))] if len(argv) > 2 else [*itertools.product(SIZES, SEEDS)]
    for size, seeds in sizes:
        design = Design(tuple(map(int, size.split("x"))))
        effect = EFFECT[seeds]
        print(f"{size}, {seeds} seeds, {count:,} matrices: % wrong, % found of {effect:g} sd: main, variant")
        print(f"{'':32}{'report':>14}{'pooled':>14}{'right model':>14}")
        for name, scenario in scenarios(design).items():
            rng = np.random.default_rng([seeds, *design.levels, *name.encode()])
            values = scenario.draw(rng, design, count, seeds)
            told = report(design, values), pooled(design, values), right_model(design, values, scenario)
            cells = [shares(design, values, half, effect) for half in told]
            print(f"{name:32}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
    return 0


def shares(design: Design, values: Numbers, half: Numbers | None, effect: float) -> str:
    """`4.1 81 65`: wrong, found as a main effect, found for a variant that differs by the last axis alone."""
    if half is None:
        return ""
    means = means_of(design, values)
    wrong = (np.abs(means) > half).any(axis=1).mean()
    variant = design.cells.index((*[0] * design.last, 1)) - 1
    main = len(design.cells) - 1 + design.mains.index((design.last, 1))
    found = [(means[:, i] + effect > half[:, i]).mean() for i in (main, variant)]
    return f"{100 * wrong:.1f} {100 * found[0]:3.0f} {100 * found[1]:3.0f}"


def means_of(design: Design, values: Numbers) -> Numbers:
    found: Numbers = values.mean(axis=2) @ design.weights.T
    return found


def report(design: Design, values: Numbers) -> Numbers:
    """Half of each interval."""
    cells = [tuple(map(str, cell)) for cell in design.cells]
    mains = design.weights[len(cells) - 1 :].tolist()
    found = []
    for table in values.tolist():
        told = [*contrasts(table, cells), *(main_effect(table, cells, weights) for weights in mains)]
        found.append([half_of(one, i < len(cells) - 1, len(told), len(mains)) for i, one in enumerate(told)])
    return np.array(found)


def half_of(one: Contrast, is_variant: bool, family: int, mains: int) -> float:
    part = (family - mains if is_variant else 1) / family
    interval = of_contrast(one, Spending(ALPHA, part, one.pairs, {one.pairs: 1.0})).interval
    assert interval is not None
    return (interval.high - interval.low) / 2


def pooled(design: Design, values: Numbers) -> Numbers:
    """Variant + seed, with Dunnett's comparisons, and Bonferroni's inequality for the main effects."""
    count, _, seeds = values.shape
    rest = values - values.mean(axis=1, keepdims=True)
    rest = rest - rest.mean(axis=2, keepdims=True)
    others = len(design.cells) - 1
    degrees, family = others * (seeds - 1), len(design.weights)
    error = np.sqrt((rest**2).sum(axis=(1, 2)) / degrees / seeds)[:, None]
    lengths = np.sqrt((design.weights**2).sum(axis=1))
    critical = np.full(family, largest_t(1, degrees, ALPHA / family))
    critical[:others] = largest_t(others, degrees, ALPHA * others / family)
    return np.broadcast_to(error * lengths * critical, (count, family))


def right_model(design: Design, values: Numbers, scenario: Scenario) -> Numbers | None:
    """None where the variants vary unlike, for which there is none among them."""
    if scenario.rows:
        return None
    freedom = values.shape[2] - 1
    centered = values - values.mean(axis=2, keepdims=True)
    variance = np.zeros((len(values), len(design.weights)))
    squares = np.zeros_like(variance)
    alike: dict[float, list[Axes]] = {}
    strata = design.strata()
    for axes in strata:
        parts = [d**2 * left_over(design, of) for of, d in scenario.moves if set(axes) <= set(of)]
        alike.setdefault(round(sum(parts), 9), []).append(axes)
    for members in alike.values():
        basis = np.hstack([strata[axes] for axes in members])
        degrees = basis.shape[1] * freedom
        mean_square = ((basis.T @ centered) ** 2).sum(axis=(1, 2)) / degrees
        part = mean_square[:, None] * ((design.weights @ basis) ** 2).sum(axis=1)
        variance, squares = variance + part, squares + part**2 / degrees
    critical = -stdtrit(variance**2 / squares, ALPHA / len(design.weights) / 2)
    found: Numbers = np.sqrt(variance / values.shape[2]) * critical
    return found


def left_over(design: Design, axes: Axes) -> int:
    """How many variants share each combination of these axes."""
    return math.prod(count for i, count in enumerate(design.levels) if i not in axes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
