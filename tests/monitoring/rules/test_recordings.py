"""How often rules are right on trainings that took place: the table of the docs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from benchmarks.alert_rules import (
    Recording,
    Score,
    alarmed,
    bound,
    is_healthy,
    is_loaded,
    judge,
    read,
    table,
)


@cache
def recordings(part: str) -> list[Recording]:
    return read(part)


@cache
def scores(part: str) -> dict[str, Score]:
    return judge(recordings(part))


def test_table_of_the_docs_is_what_the_held_out_recordings_show(root: Path) -> None:
    text = (root / "docs/alerts.md").read_text()
    healthy = [one for one in recordings("held_out") if is_healthy(one)]
    assert "\n".join(table(recordings("held_out"))) in text
    false = len(alarmed(healthy))
    said = f"{len(recordings('held_out'))} trainings, of which {len(healthy)} are healthy: {false} of these"
    words = " ".join(text.split())
    assert said in words
    assert f"a rate of at most {bound(false, len(healthy))} (" in words


def test_goal_is_held_by_all_recordings_that_are_healthy() -> None:
    healthy = [one for part in PARTS for one in recordings(part) if is_healthy(one)]
    assert len(alarmed(healthy)) < 0.01 * len(healthy)


def test_other_work_in_bursts_is_no_slow_step_of_a_training() -> None:
    """Wall times of trainings beside other work are up to twenty times those of their own work."""
    loaded = [one for part in PARTS for one in recordings(part) if is_loaded(one) and not one["faults"]]
    assert max(max(filter(None, one["sec_per_step"])) for one in loaded) > 0.2
    assert judge(loaded)["step_time"].false == 0


def test_no_training_is_recorded_twice() -> None:
    """Recordings in both parts differ in model or flags, seed included."""
    found = [f"{one['model']} {sorted(one['flags'].items())}" for part in PARTS for one in recordings(part)]
    assert len(found) == len(set(found))


PARTS = ("chosen", "held_out")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("rule", ["diverged", "gradient_norm", "loss_spike", "memory_leak", "step_time"])
def test_rule_finds_most_faults_and_hardly_any_other(part: str, rule: str) -> None:
    """The held-out ones have no leap of a gradient that harmed."""
    score = scores(part)[rule]
    assert score.found >= 0.8 * score.faults
    assert score.faults or (part, rule) == ("held_out", "gradient_norm")
    assert score.false <= 0.03 * score.healthy
