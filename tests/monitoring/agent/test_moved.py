"""A run directory that is renamed while it is trained and followed."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from monitoring import Run
from monitoring.agent.ending import OpenDirectory
from monitoring.journal.files import ALERTS, METRICS_CSV

from ...waiting import wait_until
from ..conftest import wait_for_delivery


def rows(directory: Path) -> list[str]:
    with (directory / METRICS_CSV).open(newline="") as file:
        return [row["global_step"] for row in csv.DictReader(file) if row["event"] == "step"]


@pytest.mark.parametrize("forked", [False, True])
def test_agent_goes_on_where_the_directory_is_now(
    results: Path, forked: bool, request: pytest.FixtureRequest
) -> None:
    """No record is lost or doubled, and no training is told to be dead."""
    if forked:
        request.getfixturevalue("forked_agents")
    before, after = results / "before", results / "after"
    with Run(before, name="n", project="p", config={}) as run:
        for step in (1, 2):
            run.log_step(step, train_loss=1.0)
        wait_until(lambda: rows(before) == ["1", "2"])
        before.rename(after)
        for step in (3, 4):
            run.log_step(step, train_loss=1.0)
        wait_until(lambda: rows(after) == ["1", "2", "3", "4"])
    wait_for_delivery(after)
    assert rows(after) == ["1", "2", "3", "4"]
    assert [path.name for path in results.iterdir()] == ["after"]
    assert "trainer" not in (after / ALERTS).read_text()


def test_place_is_told_after_a_rename_and_not_after_a_removal(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    place = OpenDirectory(there)
    assert place.moved_to() is None
    there.rename(tmp_path / "elsewhere")
    assert place.moved_to() == tmp_path / "elsewhere"
    there.mkdir()
    assert place.moved_to() == tmp_path / "elsewhere"
    (tmp_path / "elsewhere").rmdir()
    assert place.moved_to() is None
