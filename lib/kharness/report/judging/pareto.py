"""Quality against what it costs: the variants that no other beats in both (the Pareto front)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Front:
    """Of one workload, in one kind of cost. Means decide here, whatever their spread."""

    workload: str
    quality: str
    """Name of the metric."""
    cost: str
    """Name of the metric."""
    points: Mapping[str, tuple[float, float]]
    """Variant to (quality, cost), in the metrics' units."""
    members: Sequence[str]
    """On the front: nothing is at least as good in both and better in one, as far as tables show."""
    dominated: Mapping[str, str]
    """Each other variant, with one of the front that beats it."""
    unmeasured: Sequence[str]
    """Variants without the quality or without the cost; they are on no front."""


def front(
    values: Mapping[str, tuple[float | None, float | None]],
    *,
    workload: str,
    quality: str,
    cost: str,
    higher_is_better: bool,
    resolution: tuple[float, float],
) -> Front:
    """From each variant's mean quality and mean cost (None: not measured); less cost is better.

    `resolution` is what tables show of the quality and of the cost: nothing is beaten by less than that.
    """
    points = {name: (q, c) for name, (q, c) in values.items() if q is not None and c is not None}
    sign = 1 if higher_is_better else -1
    finest, cheapest = resolution
    goodness = {name: (sign * round(q / finest), -round(c / cheapest)) for name, (q, c) in points.items()}
    members = [name for name in points if not any(_beats(goodness[o], goodness[name]) for o in points)]
    return Front(
        workload=workload,
        quality=quality,
        cost=cost,
        points=points,
        members=members,
        dominated={
            name: next(o for o in members if _beats(goodness[o], goodness[name]))
            for name in points
            if name not in members
        },
        unmeasured=[name for name in values if name not in points],
    )


def _beats(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one != other
