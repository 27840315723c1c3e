"""Facts about all attempts at a run together: whether it was unstable, and what else ran meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from kharness.runs.status import Attempt


def failed_before(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Those before the last that failed: with any, a complete run is an unstable one."""
    return [attempt for attempt in attempts[:-1] if attempt.failed]


def other_work(attempts: Sequence[Attempt]) -> float | None:
    """Return the share of other work, weighted by the length of the attempts since the last start from
    scratch; None if one was not measured.
    """
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
