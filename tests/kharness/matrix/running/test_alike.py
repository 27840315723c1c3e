"""Failures that are one: what runs say but for their own values."""

from __future__ import annotations

from pathlib import Path

import pytest

from kharness.matrix.running.alike import FirstFailures, words_of
from kharness.matrix.running.execute import Outcome
from kharness.runs.command import Command, CommandLaunch, command_launch
from kharness.runs.status import Attempt


def launch(name: str, **values: object) -> CommandLaunch:
    return command_launch(Path("/results/matrix") / name, Command(["python", "train.py"], "/", values))


def failed(reason: str, *, code: int = 2, cause: str = "refused", seconds: float = 1.0) -> Outcome:
    attempt = Attempt(10.0, ended=10.0 + seconds, exit_code=code, cause=cause, reason=reason)
    return Outcome("failed", attempt)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("exit code 2: unrecognized arguments: --sed 1", "exit code 2: unrecognized arguments: --sed 12"),
        ("no file /results/matrix/a/x.pt", "no file /results/matrix/b/x.pt"),
        ("adam of run a: lr 1e-3 is bad", "sgd of run b: lr 0.25 is bad"),
    ],
)
def test_words_of_ones_own_do_not_tell_runs_apart(first: str, second: str) -> None:
    one, other = launch("a", SEED=1, OPTIMIZER="adam"), launch("b", SEED=12, OPTIMIZER="sgd")
    assert words_of(first, one) == words_of(second, other)
    assert words_of("exit code 2: no", one) != words_of("exit code 2: yes", other)
    assert words_of("madam", one) == "madam"


def took(most: int, *outcomes: Outcome, step: int = 0) -> list[bool]:
    first = FirstFailures(most)
    return [first.are_one(launch(f"s{n}", SEED=n), one, step=step) for n, one in enumerate(outcomes)]


ALIKE = [failed(f"exit code 2: --sed {n}") for n in range(4)]


def test_first_failures_are_one_once_there_are_enough() -> None:
    assert took(3, *ALIKE) == [False, False, True, True]
    assert took(0, *ALIKE) == [False] * 4
    assert took(3, *ALIKE, step=5) == [False] * 4  # they have trained


@pytest.mark.parametrize(
    "first",
    [
        Outcome("complete", Attempt(10.0, ended=11.0, exit_code=0)),
        failed("exit code 2: --sed 1", cause="out_of_memory"),
        failed("exit code 2: --sed 1", code=1),
        failed("exit code 2: --sed 1", seconds=31.0),
        failed("exit code 2: no such file"),
    ],
)
def test_another_end_among_the_first_is_told_apart(first: Outcome) -> None:
    assert took(2, first, *ALIKE) == [False] * 5
    assert took(2, ALIKE[0], first, *ALIKE[1:]) == [False] * 5
