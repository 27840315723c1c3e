"""A trial whose steps are known: what each took, or why it failed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kharness.training.autotune.trial import TrialFailedError, TrialStep


class Recorded:
    """A trial whose steps are known."""

    def __init__(self, steps: Sequence[TrialStep | TrialFailedError]) -> None:
        self.left = list(steps)
        self.limits: list[float] = []
        self.is_closed = False

    def step(self, most_seconds: float = math.inf, /) -> TrialStep:
        self.limits.append(most_seconds)
        found = self.left.pop(0)
        if isinstance(found, TrialFailedError):
            raise found
        return found

    def close(self) -> None:
        self.is_closed = True
