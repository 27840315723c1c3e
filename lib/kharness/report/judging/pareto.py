"""Pareto front of quality against cost: the variants that no other is shown to beat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Front:
    """The Pareto front of one workload, for one kind of cost.

    A variant is beaten by one that is at least as good in both by its means, as far as tables show, and shown
    to be better in one of them: what is ahead by chance alone beats nobody.
    """

    workload: str
    quality: str
    """Name of the metric."""
    cost: str
    """Name of the metric."""
    points: Mapping[str, tuple[float, float]]
    """Variant to (quality, cost), in the metrics' units."""
    members: Sequence[str]
    """Variants on the front: none is shown to beat them."""
    dominated: Mapping[str, str]
    """Each other variant, with one that beats it, from the front where possible."""
    unmeasured: Sequence[str]
    """Variants without the quality or without the cost; they are on no front."""
    judged: bool = True
    """Whether there were enough seeds to show anything."""


def front(
    values: Mapping[str, tuple[float | None, float | None]],
    *,
    workload: str,
    quality: str,
    cost: str,
    higher_is_better: bool,
    resolution: tuple[float, float],
    shown: Iterable[tuple[str, str]] | None,
) -> Front:
    """Compute the front from each variant's mean quality and mean cost (None: not measured); less cost is
    better.

    `shown` has the pairs (better, worse) that are shown to differ in one of them, None if nothing can be;
    `resolution` is what tables show of the quality and of the cost: what differs by less is equal.
    """
    points = {name: (q, c) for name, (q, c) in values.items() if q is not None and c is not None}
    sign = 1 if higher_is_better else -1
    finest, cheapest = resolution
    goodness = {name: (sign * round(q / finest), -round(c / cheapest)) for name, (q, c) in points.items()}
    beaten_by: dict[str, list[str]] = {}
    for better, worse in shown or ():
        if better in points and worse in points and _beats(goodness[better], goodness[worse]):
            beaten_by.setdefault(worse, []).append(better)
    members = [name for name in points if name not in beaten_by]
    # A variant is named as beaten by one of the front, where there is one: the first of them.
    # False sorts before True, and the sort is stable: those of the front first, in the order of the report.
    first = {name: place for place, name in enumerate(sorted(points, key=beaten_by.__contains__))}
    return Front(
        workload=workload,
        quality=quality,
        cost=cost,
        points=points,
        members=members,
        dominated={name: min(beaten_by[name], key=first.__getitem__) for name in points if name in beaten_by},
        unmeasured=[name for name in values if name not in points],
        judged=shown is not None,
    )


def _beats(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one != other
