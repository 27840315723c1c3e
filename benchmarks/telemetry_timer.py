"""The cost of a timer of TelemetryTracker, enabled and disabled, beside the two looks at the clock it needs.

Median CPU time over rounds of loops that are run in turns, the loop itself subtracted. Run by `make bench
ONLY=telemetry_timer`; it imports no torch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from monitoring.telemetry import TelemetryTracker
from monitoring.telemetry.timers import Timer

CALLS = 20_000
ROUNDS = 31


def main() -> None:
    """Print the median microseconds of each."""
    enabled, disabled = TelemetryTracker(), TelemetryTracker(enabled=False)
    contestants: dict[str, Callable[[], float]] = {
        "empty loop": empty,
        "two looks at the clock": two_looks,
        "timer": lambda: timed(enabled.timer),
        "timer, disabled": lambda: timed(disabled.timer),
        "usual context manager": lambda: timed(Usual),
    }
    rounds = [{name: seconds() for name, seconds in contestants.items()} for _ in range(ROUNDS)]
    print(f"{'us a call':<26}{'median':>8}{'min':>8}   ({ROUNDS} rounds of {CALLS})")
    for name in [name for name in contestants if name != "empty loop"]:
        found = [(one[name] - one["empty loop"]) / CALLS * 1e6 for one in rounds]
        print(f"{name:<26}{statistics.median(found):>8.3f}{min(found):>8.3f}")


class Usual:
    """A timer as one writes it by hand: an object per block, which adds to a list."""

    measured: list[float] = []  # noqa: RUF012 - one list is what it is about

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        Usual.measured.append(time.perf_counter() - self.begun)


def empty() -> float:
    began = time.process_time()
    for _ in range(CALLS):
        pass
    return time.process_time() - began


def two_looks() -> float:
    look = time.perf_counter
    began = time.process_time()
    for _ in range(CALLS):
        look()
        look()
    return time.process_time() - began


def timed(timer: Callable[[str], Timer | Usual]) -> float:
    """A block of nothing, timed again and again."""
    began = time.process_time()
    for _ in range(CALLS):
        with timer("phase"):
            pass
    return time.process_time() - began


if __name__ == "__main__":
    main()
