"""Estimate the time left, from the pace of running cells and from the duration of similar runs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def time_left(
    running: Sequence[float | None],
    waiting: Sequence[float | None],
    *,
    jobs: int,
    typical: float | None = None,
) -> float | None:
    """Seconds until the last run ends when `jobs` run at once; None where that is not known.

    `running` has what is left of each, `waiting` how long each will take; `typical` replaces what is
    not known of a single one.
    """
    left = [typical if one is None else one for one in running]
    lengths = [typical if one is None else one for one in waiting]
    known_left = [one for one in left if one is not None]
    known_lengths = [one for one in lengths if one is not None]
    if len(known_left) < len(left) or len(known_lengths) < len(lengths):
        return None
    # Each waiting one begins where the first place becomes free.
    places = [*known_left, *[0.0] * (jobs - len(known_left))]
    heapq.heapify(places)
    for length in sorted(known_lengths, reverse=True):
        heapq.heapreplace(places, places[0] + length)
    return max(places, default=0.0)
