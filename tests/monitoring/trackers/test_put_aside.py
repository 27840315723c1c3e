"""Records that real sinks refuse, in the midst of others: put aside alone, counted and told."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from monitoring.agent.follow import catch_up, undelivered
from monitoring.agent.progress import read_progress
from monitoring.follower import RunInfo, follower_module, follower_options
from monitoring.journal.records import read_records
from monitoring.trackers import journal_points

from .conftest import MakeFollowed, new_run

# No year: a time that Trackio cannot write.
NO_TIME = 1e20

STEPS = 2500


@pytest.fixture
def poisoned(tmp_path: Path, followed: MakeFollowed) -> Path:
    """A finished run with Trackio; of its records 1, 2, 500, 1000, 1001, 2500 and 2501 have no year."""
    directory = tmp_path / "run"
    with new_run(directory, "aside", "trackio") as run:
        for step in range(1, STEPS + 1):
            run.log_step(step, train_loss=1 / step)
        run.finish(best_val_loss=0.5)
    rewrite(directory / "metrics.jsonl", {1, 2, 500, 1000, 1001, 2500, 2501})
    return directory


def rewrite(journal: Path, seqs: set[int]) -> None:
    records = [record for record, _ in read_records(journal)]
    for record in records:
        if record["seq"] in seqs:
            record["time"] = NO_TIME
    journal.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))


def held(directory: Path) -> list[int]:
    """The seqs of Trackio's rows of the loss, in their order."""
    module = follower_module("trackio")
    points = module.read_back(RunInfo.read(directory), follower_options("trackio", {}))
    return [point.seq for point in points if point.metric == "train_loss"]


def alerts(directory: Path) -> list[object]:
    return [record["message"] for record, _ in read_records(directory / "alerts.jsonl")]


def test_refused_records_are_put_aside_alone_counted_and_told_once(poisoned: Path) -> None:
    csv, trackio = catch_up(poisoned)

    assert (csv.delivered, csv.error, csv.progress.refused) == (STEPS + 1, None, 0)
    assert (trackio.error, trackio.progress.refused) == (None, 7)
    assert held(poisoned) == [seq for seq in range(1, STEPS) if seq not in {1, 2, 500, 1000, 1001}]
    assert read_progress(poisoned) == {"csv": csv.progress, "trackio": trackio.progress}
    assert str(trackio.progress.refusal).startswith("record 2501 (end): ")
    [told] = alerts(poisoned)
    assert str(told).startswith("trackio: refuses record 1 (step at step 1): ")
    assert str(told).endswith("; it is skipped, followers.json counts")
    assert undelivered(poisoned) == {}


def test_refused_records_are_neither_asked_for_nor_counted_again(poisoned: Path) -> None:
    first = catch_up(poisoned)
    again = catch_up(poisoned)
    assert [(delivery.delivered, delivery.error) for delivery in again] == [(0, None), (0, None)]
    assert [delivery.progress for delivery in again] == [delivery.progress for delivery in first]
    assert len(alerts(poisoned)) == 1


def test_sink_that_refuses_everything_fails_and_keeps_its_place(
    tmp_path: Path, followed: MakeFollowed
) -> None:
    """A library of another version may refuse every record now and accept them later."""
    with new_run(tmp_path / "run", "all", "trackio") as run:
        for step in range(1, 4):
            run.log_step(step, train_loss=1 / step)
    journal = tmp_path / "run" / "metrics.jsonl"
    right = journal.read_bytes()
    rewrite(journal, {1, 2, 3})
    _, trackio = catch_up(tmp_path / "run")
    assert (isinstance(trackio.error, (OverflowError, ValueError)), trackio.progress.refused) == (True, 0)
    assert undelivered(tmp_path / "run") == {"trackio": 4}

    journal.write_bytes(right)
    _, trackio = catch_up(tmp_path / "run")
    assert (trackio.error, held(tmp_path / "run")) == (None, [1, 2, 3])


@pytest.mark.parametrize("tracker", ["tensorboard", "trackio", "wandb"])
def test_gpu_sample_that_is_none_keeps_no_record_from_a_tracker(
    tmp_path: Path, followed: MakeFollowed, tracker: str
) -> None:
    with new_run(tmp_path / "run", "gpu", tracker) as run:
        for step in range(1, 4):
            run.log_step(step, train_loss=1 / step)
    broken = {"event": "gpu", "seq": 1, "attempt": 1, "time": 0.0, "multi_gpu_data": 7}
    (tmp_path / "run" / "gpu_stats.jsonl").write_bytes(orjson.dumps(broken) + b"\n")
    for count in (5, 0):
        _, delivery = catch_up(tmp_path / "run")
        assert (delivery.delivered, delivery.error, delivery.progress.refused) == (count, None, 1)

    journal = [record for record, _ in read_records(tmp_path / "run" / "metrics.jsonl")]
    module = follower_module(tracker)
    points = module.read_back(RunInfo.read(tmp_path / "run"), follower_options(tracker, {}))
    assert [point.seq for point in points] == [point.seq for point in journal_points(journal)]
