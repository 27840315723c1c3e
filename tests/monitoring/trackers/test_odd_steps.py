"""Journals whose records stand at steps that are none: every sink takes every record, each once."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from monitoring.agent.follow import catch_up
from monitoring.exporters._run_files import RunFiles
from monitoring.follower import RunInfo, follower_module, follower_options
from monitoring.journal.records import read_records
from monitoring.trackers import TrackerPoint, journal_points

from .conftest import MakeFollowed, new_run

# JSON of a step -> the step that it is.
STEPS = {"1.5": None, "3.0": 3, "true": None, '"abc"': None, str(2**63): None, str(-(2**70)): None}


class MakeOddRun(Protocol):
    def __call__(self, step: str, *trackers: str) -> Path: ...


@pytest.fixture
def odd_run(tmp_path: Path) -> MakeOddRun:
    """Makes a finished run of steps 1 to 5 whose third record stands at the given step."""

    def make(step: str, *trackers: str) -> Path:
        directory = tmp_path / "run"
        with new_run(directory, "odd", *trackers) as run:
            for number in range(1, 6):
                run.log_step(number, train_loss=1 / number)
        journal = directory / "metrics.jsonl"
        journal.write_text(journal.read_text().replace('"global_step":3', f'"global_step":{step}'))
        return directory

    return make


def received(directory: Path, tracker: str) -> list[TrackerPoint]:
    module = follower_module(tracker)
    points: list[TrackerPoint] = module.read_back(RunInfo.read(directory), follower_options(tracker, {}))
    return [point for point in map(rounded, points) if point.metric == "train_loss"]


def rounded(point: TrackerPoint) -> TrackerPoint:
    return replace(point, value=round(point.value, 6))  # TensorBoard's values have 32 bits


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("tracker", ["tensorboard", "trackio", "wandb"])
def test_tracker_takes_every_record_once_whatever_a_step_is(
    followed: MakeFollowed, odd_run: MakeOddRun, tracker: str, step: str
) -> None:
    directory = odd_run(step, tracker)
    for count in (6, 0):
        delivered = {delivery.name: (delivery.delivered, delivery.error) for delivery in catch_up(directory)}
        assert delivered == {"csv": (count, None), tracker: (count, None)}

    journal = [record for record, _ in read_records(directory / "metrics.jsonl")]
    sent = [rounded(point) for point in journal_points(journal) if point.metric == "train_loss"]
    assert [point.global_step for point in sent] == [1, 2, STEPS[step], 4, 5]
    if tracker != "wandb":  # in these a record without a step stands at the one before it
        sent[2] = replace(sent[2], global_step=STEPS[step] or 2)
    assert received(directory, tracker) == sent
    assert not (directory / "alerts.jsonl").exists() or (directory / "alerts.jsonl").read_bytes() == b""


@pytest.mark.parametrize("step", STEPS)
def test_csv_and_prometheus_leave_out_a_step_that_is_none(odd_run: MakeOddRun, step: str) -> None:
    directory = odd_run(step)
    catch_up(directory)
    with (directory / "metrics.csv").open(newline="") as file:
        rows = [(row["seq"], row["global_step"]) for row in csv.DictReader(file)]
    odd = "" if STEPS[step] is None else str(STEPS[step])
    assert rows == [("1", "1"), ("2", "2"), ("3", odd), ("4", "4"), ("5", "5"), ("6", "")]

    files = RunFiles(directory)
    files.read()
    state = files.state.ranks[0]
    assert (state.step, state.most_steps, state.last_seq) == (5, 5, 6)


def test_step_that_is_none_and_the_last_one_is_delivered_and_not_again(
    followed: MakeFollowed, odd_run: MakeOddRun
) -> None:
    """A trainer that was killed: nothing comes behind the odd record."""
    directory = odd_run(str(2**63), "trackio")
    journal = directory / "metrics.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]))
    assert [(it.delivered, it.error) for it in catch_up(directory)] == [(3, None), (3, None)]
    assert [(it.delivered, it.error) for it in catch_up(directory)] == [(0, None), (0, None)]
    assert [point.global_step for point in received(directory, "trackio")] == [1, 2, 2]
    assert re.search(rb'"refused": 0', (directory / "followers.json").read_bytes())
