"""What the attempts at a run say about it together: whether it was unstable, and what else ran meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from kharness.runs.status import Attempt


def failed_before(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Those before the last that failed: with any, a complete run is an unstable one."""
    return [attempt for attempt in attempts[:-1] if attempt.failed]


def other_work(attempts: Sequence[Attempt]) -> float | None:
    """Of the attempts since the run last began, weighted by length; None if one was not measured."""
    first = max((i for i, attempt in enumerate(attempts) if attempt.from_scratch), default=0)
    known = [
        (attempt.seconds, attempt.other_work)
        for attempt in attempts[first:]
        if attempt.seconds is not None and attempt.other_work is not None
    ]
    seconds = sum(length for length, _ in known)
    if len(known) < len(attempts[first:]) or not seconds:
        return None
    return sum(length * share for length, share in known) / seconds
