"""Delays between tries, and that nobody else doubles any."""

from __future__ import annotations

import re
from pathlib import Path

from monitoring.host.backoff import STEADY_SECONDS, Backoff


def test_delay_doubles_up_to_the_longest_however_often_it_fails() -> None:
    backoff = Backoff(first=10.0, longest=300.0)
    assert [backoff.failed() for _ in range(7)] == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert {backoff.failed() for _ in range(2000)} == {300.0}


def test_delay_begins_again_after_a_steady_minute_and_when_told() -> None:
    backoff = Backoff()
    assert [backoff.failed(), backoff.failed(lived=STEADY_SECONDS), backoff.coming] == [1.0, 2.0, 4.0]
    assert [backoff.failed(lived=STEADY_SECONDS + 1), backoff.failed()] == [1.0, 2.0]
    backoff.reset()
    assert backoff.failed() == 1.0


def test_delays_are_doubled_in_one_place(root: Path) -> None:
    doubling = re.compile(r"2 ?\*\* ?self\.|min\(2 \* |delay \*= 2")
    found = [path.name for path in sorted(root.glob("lib/**/*.py")) if doubling.search(path.read_text())]
    assert found == ["backoff.py"], "use monitoring.host.backoff.Backoff"
