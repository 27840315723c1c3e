"""Interfaces through which the runner learns what to run next, where it fits, and which runs to give up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kharness.matrix.running.execute import ActiveRun, Outcome
from kharness.runs.launch import Launch

# Seconds between two drawings of a view.
DRAW_EVERY = 0.25


class Source(Protocol):
    """Hands out launches, one at a time, when there is room for one."""

    def next(self) -> Launch | None:
        """Return the next launch; None while there is nothing to hand out."""

    def waiting(self) -> int | None:
        """How many are still to be handed out; None if that is not known."""

    def done(self) -> bool:
        """Whether nothing will be handed out any more."""

    def ended(self, launch: Launch, outcome: Outcome) -> None:
        """Called once for each, after its last attempt."""


class Queue:
    """Launches that are all known from the start, in their order."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = deque(launches)

    def next(self) -> Launch | None:
        return self._launches.popleft() if self._launches else None

    def waiting(self) -> int | None:
        return len(self._launches)

    def done(self) -> bool:
        return not self._launches

    def ended(self, launch: Launch, outcome: Outcome) -> None:
        pass


class RunnerView(Protocol):
    """Shows what becomes of the runs."""

    def say(self, line: str) -> None: ...

    def started(self, run: ActiveRun) -> None: ...

    def update(self, running: Sequence[ActiveRun], num_waiting: int | None) -> None:
        """Called often; shows what is new, if it is time to."""

    def ended(self, run: ActiveRun, outcome: Outcome, *, again: bool = False) -> None:
        """How an attempt has ended, and whether there will be another."""

    def not_started(self, launch: Launch, outcome: Outcome) -> None: ...

    def close(self) -> None: ...


class Watcher(Protocol):
    """Looks at the running ones and may give some up."""

    def look(self, running: Sequence[ActiveRun]) -> Mapping[str, str]:
        """The names of those to stop early, each with the reason; their tails are fresh."""

    def at_end(self) -> str:
        """Return the lines to print once nothing runs any more; empty for none."""


def longest_first(launches: Sequence[Launch], seconds: Callable[[Launch], float | None]) -> list[Launch]:
    """Order the launches so that the matrix ends soonest when several run in parallel; untimed ones come
    first.

    Those of equal length keep their order.
    """
    known = {launch.name: seconds(launch) for launch in launches}
    return sorted(launches, key=lambda launch: -(known[launch.name] or float("inf")))
