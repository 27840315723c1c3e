"""How often rules are right on trainings that took place: the table of the docs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from benchmarks.alert_rules import Recording, Score, is_healthy, judge, read, table


@cache
def recordings(part: str) -> list[Recording]:
    return read(part)


@cache
def scores(part: str) -> dict[str, Score]:
    return judge(recordings(part))


def test_table_of_the_docs_is_what_the_held_out_recordings_show(root: Path) -> None:
    text = (root / "docs/alerts.md").read_text()
    assert "\n".join(table(scores("held_out"))) in text
    healthy = [one for one in recordings("held_out") if is_healthy(one)]
    alarmed = sum(any(score.false for score in judge([one]).values()) for one in healthy)
    said = f"{len(recordings('held_out'))} trainings, of which {len(healthy)} are healthy: {alarmed} of these"
    assert said in " ".join(text.split())


def test_no_training_is_in_both_parts() -> None:
    """By what it is trained with, seed included."""
    chosen, held_out = ({str(sorted(one["flags"].items())) for one in recordings(part)} for part in PARTS)
    assert chosen.isdisjoint(held_out)


PARTS = ("chosen", "held_out")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("rule", ["diverged", "gradient_norm", "loss_spike", "memory_leak", "step_time"])
def test_rule_finds_most_faults_and_hardly_any_other(part: str, rule: str) -> None:
    score = scores(part)[rule]
    assert score.found >= 0.8 * score.faults > 0
    assert score.false <= 0.03 * score.healthy
