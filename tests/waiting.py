"""Waiting for what other processes do: for a state, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Nothing takes so long on a loaded machine; what does will not come.
GUARD = 600.0
# A question may read files: whoever has waited long asks less often, for others need the core.
SELDOM = 0.05


def wait_until(condition: Callable[[], T], what: str = "it", *, every: float = 0.01) -> T:
    """The first true value of the condition; an OSError meanwhile counts as false."""
    began = time.monotonic()
    while True:
        try:
            if result := condition():
                return result
        except OSError:
            pass
        waited = time.monotonic() - began
        assert waited < GUARD, f"{what} took over {GUARD} s"
        time.sleep(max(every, min(waited / 20, SELDOM)))
