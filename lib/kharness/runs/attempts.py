"""The attempts at a run, from its status.json: how long each took, and whether the run needed luck."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.runs.files import STATUS_JSON

# sysexits.h EX_TEMPFAIL: the trainer was asked to stop, and saved everything.
_STOPPED = 75
# Ends that say nothing about the run itself.
_NOT_ITS_FAULT = ("stopped", "stopped_early", "runner_died")


@dataclass(frozen=True)
class Attempt:
    """One process; what is not known is None. Times are UTC epoch seconds."""

    started: float | None
    ended: float | None
    exit_code: int | None
    signal: int | None
    cause: str | None
    reason: str | None
    other_work: float | None = None
    """The share of the processors, from 0 to 1, that others than the runner and its runs kept busy."""
    from_scratch: bool = False

    @property
    def seconds(self) -> float | None:
        """Wall time from launch to end; not known where the clock was set back meanwhile."""
        if self.started is None or self.ended is None or self.ended < self.started:
            return None
        return self.ended - self.started

    @property
    def failed(self) -> bool:
        """Whether it ended badly, other than on request or together with the runner."""
        if self.cause in _NOT_ITS_FAULT:
            return False
        return self.signal is not None or self.exit_code not in (None, 0, _STOPPED)


def read_attempts(run: Path) -> Sequence[Attempt]:
    """The attempts in RUN/status.json, the oldest first; none if there is no such file, or it is damaged."""
    try:
        written = json.loads((run / STATUS_JSON).read_bytes())["attempts"]
        return [_attempt(one) for one in written if isinstance(one, Mapping)]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # load_run tells a damaged status.json; here it only has no attempts


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


def _attempt(written: Mapping[str, object]) -> Attempt:
    return Attempt(
        started=_number(written.get("started")),
        ended=_number(written.get("ended")),
        exit_code=_whole(written.get("exit_code")),
        signal=_whole(written.get("signal")),
        cause=_text(written.get("cause")),
        reason=_text(written.get("reason")),
        other_work=_number(written.get("other_work")),
        from_scratch="--from-scratch" in _list(written.get("arguments")),
    )


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
