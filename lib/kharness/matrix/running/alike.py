"""Failures that are one: a command that is typed wrong fails at once, in every run, with the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kharness.runs.causes import common_words
from kharness.runs.command import CommandLaunch
from kharness.runs.exit_codes import ERROR, REFUSED
from kharness.runs.launch import Launch
from kharness.runs.status import FAILED, Attempt

if TYPE_CHECKING:  # with launchers, which a look at files does not need
    from kharness.matrix.running.execute import Outcome

# So many first runs that fail alike, each within so many seconds, are taken for all.
FIRST = 3
AT_ONCE = 30.0


def words_of(text: str, launch: Launch) -> str:
    """Return a run's output without its own place, name, values and numbers."""
    values = launch.of.values if isinstance(launch, CommandLaunch) else {}
    return common_words(text, [str(launch.directory), launch.name, *map(str, values.values())])


def failure(attempt: Attempt, launch: Launch) -> tuple[int | None, str]:
    """Return the failure of a run in a form that equals other runs' of the same cause."""
    return attempt.exit_code, words_of(attempt.reason or "", launch)


class FirstFailures:
    """The first runs of a matrix, as long as all of them fail alike."""

    def __init__(self, most: int) -> None:
        """After `most` of them no other is to be started; 0 for never."""
        self._most = most
        self._what: tuple[int | None, str] | None = None
        self._count = 0

    def are_one(self, launch: Launch, outcome: Outcome, *, step: int) -> bool:
        """Take how a run has ended after a step; whether all so far are one failure, and enough of them."""
        if not self._most:
            return False
        is_quick = not step and outcome.seconds < AT_ONCE
        is_own = outcome.status == FAILED and outcome.attempt.cause in (ERROR, REFUSED)
        what = failure(outcome.attempt, launch)
        if not (is_quick and is_own) or what != (self._what or what):
            self._most = 0
            return False
        self._what = what
        self._count += 1
        return self._count >= self._most
