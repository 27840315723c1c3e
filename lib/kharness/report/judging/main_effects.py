"""Main effects of a factorial matrix: a level of an axis against the baseline's, averaged over all other
axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kharness.report.collection import Variant
from kharness.report.judging.baseline import WORKLOAD_AXES
from kharness.report.judging.factorial import Cell, crossed


@dataclass(frozen=True)
class MainEffect:
    """A level of an axis against another one, as the mean over every combination of the other axes."""

    level: str
    """`optimizer=adam`."""
    baseline: str
    over: tuple[str, ...]
    """The other axes."""
    pairs: Sequence[tuple[Variant, Variant]]
    """Variants with that level and with the baseline's, equal on all other axes."""
    table: Sequence[Variant]
    """All variants that the error is estimated from."""


def main_effects(pairs: Sequence[tuple[Variant, Variant]]) -> Sequence[MainEffect]:
    """Return the main effects among variants and baselines; none if combinations are missing or one axis
    varies.

    An axis has some where all baselines have the same level of it. Models and datasets are no such axes.
    """
    workloads: dict[tuple[str | None, ...], list[tuple[Variant, Variant]]] = {}
    for pair in pairs:
        workloads.setdefault(tuple(pair[0].values.get(axis) for axis in WORKLOAD_AXES), []).append(pair)
    return [effect for of_workload in workloads.values() for effect in _of_workload(of_workload)]


def cells_of(variants: Sequence[Variant]) -> tuple[Sequence[str], Sequence[Cell]]:
    """Return the axes of variants, and the levels of each variant; an axis that it lacks has the empty
    level.
    """
    axes = [*dict.fromkeys(axis for variant in variants for axis in variant.values)]
    return axes, [tuple(variant.values.get(axis, "") for axis in axes) for variant in variants]


def pairs_of_levels(variants: Sequence[Variant]) -> int:
    """Return the number of main effects that could be selected from these variants of one workload."""
    _, cells = cells_of(variants)
    axes = [group[0] for group in crossed(cells) if len(group) == 1] if cells else []
    return sum(math.comb(len({cell[axis] for cell in cells}), 2) for axis in axes)


def _of_workload(pairs: Sequence[tuple[Variant, Variant]]) -> list[MainEffect]:
    baselines = {baseline.label: baseline for _, baseline in pairs}
    variants = [*({**baselines, **{variant.label: variant for variant, _ in pairs}}).values()]
    axes, cells = cells_of(variants)
    by_cell = dict(zip(cells, variants, strict=True))
    found = []
    groups = crossed(cells)
    for place in (group[0] for group in groups if len(group) == 1):
        levels = {baseline.values.get(axes[place], "") for baseline in baselines.values()}
        # Baselines at several levels of this axis: it has no one level that the others are compared with.
        if len(levels) > 1:
            continue
        (base,) = levels
        others = tuple(axes[i] for group in groups for i in group if i != place)
        for level in dict.fromkeys(cell[place] for cell in cells if cell[place] != base):
            members = [
                (variant, by_cell[(*cell[:place], base, *cell[place + 1 :])])
                for cell, variant in by_cell.items()
                if cell[place] == level
            ]
            found.append(
                MainEffect(_name(axes[place], level), _name(axes[place], base), others, members, variants)
            )
    return found


def _name(axis: str, level: str) -> str:
    return f"{axis.lower()}={level}"


def weights_of(effect: MainEffect, table: Sequence[Variant]) -> Sequence[float]:
    """Return the weight of each row of a table in the contrast of a main effect."""
    sides: Mapping[str, float] = {
        variant.label: sign / len(effect.pairs)
        for sign, side in ((1.0, 0), (-1.0, 1))
        for variant in (pair[side] for pair in effect.pairs)
    }
    return [sides.get(variant.label, 0.0) for variant in table]
