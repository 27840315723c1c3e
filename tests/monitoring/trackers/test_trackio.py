"""Trackio: what its own interface gives back, and projects that several runs and any name share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitoring.follower import RunInfo
from monitoring.journal.records import read_records
from monitoring.trackers.trackio import Options, database, open_follower, project_name

from .conftest import MakeFollowed, new_run


def test_trackio_gives_back_the_run_through_its_interface(followed: MakeFollowed) -> None:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    run = followed("trackio")
    run.train(3, project="interface", name="a run", group="matrix 1")
    run.follow()

    [held] = trackio.Api().runs("interface")
    config = held.config
    assert (held.id, held.name, config["_Group"]) == (run.info.run_id, "a run", "matrix 1")
    assert {name: config[name] for name in ("SEED", "LIST")} == {"SEED": 1, "LIST": [1, 2]}
    logs = SQLiteStorage.get_logs("interface", run_id=held.id)
    assert [(row["step"], row["train_loss"]) for row in logs if "train_loss" in row] == [
        (1, 1.0),
        (2, 1 / 2),
        (3, 1 / 3),
    ]
    assert [(row["step"], row["epoch/train_loss"]) for row in logs if "epoch/train_loss" in row] == [(3, 0.2)]
    assert [row["step"] for row in logs if "best_val_loss" in row] == [3]
    assert SQLiteStorage.get_all_system_metrics_for_run("interface", "a run") == []


def test_restart_updates_the_configuration_and_keeps_when_the_run_was_created(followed: MakeFollowed) -> None:
    import trackio

    run = followed("trackio")
    run.train(2, project="restart", status="interrupted")
    run.follow()
    [first] = trackio.Api().runs("restart")
    run.train(2, project="restart", config={"SEED": 1, "EPOCHS": 9})
    run.follow()

    [second] = trackio.Api().runs("restart")
    assert second.config == {"SEED": 1, "EPOCHS": 9, "_Group": None, "_Created": first.config["_Created"]}


def test_write_ahead_log_is_emptied_once_at_the_end(shared_trackio: None, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", "wal", "trackio")
    run.log_step(1, train_loss=0.5)
    records = [record for record, _ in read_records(tmp_path / "run" / "metrics.jsonl")]
    follower = open_follower(RunInfo.read(tmp_path / "run"), Options())
    log = database("wal").with_name(database("wal").name + "-wal")
    sizes = []
    for number in range(2):
        follower.deliver([{**records[0], "seq": number + 1, "global_step": number + 1}])
        follower.flush()
        sizes.append(log.stat().st_size)
    assert 0 < sizes[0] < sizes[1]
    assert follower.last_seq() == 2  # by a connection of its own

    follower.close(None)
    assert not log.exists()
    run.finish()


def test_several_agents_write_to_one_project_at_once(followed: MakeFollowed) -> None:
    runs = [followed("trackio", f"cell {number}") for number in range(4)]
    for number, run in enumerate(runs):
        run.train(2000, project="matrix", name=f"cell {number}")
    agents = [run.python.start(["-m", "monitoring.agent", run.directory]) for run in runs]

    assert [agent.wait() for agent in agents] == [0, 0, 0, 0]
    for run in runs:
        received = sorted(run.received(), key=lambda point: (point.seq, point.metric))
        assert received == sorted(run.sent(), key=lambda point: (point.seq, point.metric))
        assert run.alerts() == []


@pytest.mark.parametrize(
    "project",
    [
        "a/b",
        "../../outside",
        'it\'s "quoted"; DROP TABLE metrics',
        "日本語 プロジェクト",
        "x" * 300,
        "é" * 150,
        "model_configs",
        "registry-of-models",
        "...",
    ],
)
def test_project_of_any_name_has_a_file_of_its_own_in_trackios_folder(
    followed: MakeFollowed, project: str
) -> None:
    run = followed("trackio")
    run.train(2, project=project, name=f"run of {project}")
    run.follow()

    assert run.alerts() == []
    assert database(project).parent == Path(os.environ["TRACKIO_DIR"])
    assert database(project).is_file()
    assert {point.seq for point in run.received()} == {point.seq for point in run.sent()}


def test_projects_that_trackio_would_take_for_one_are_two() -> None:
    names = ["ab", "a/b", "a b", "a.b"]
    assert len({project_name(name) for name in names}) == len(names)
    assert project_name("gpt2-a3f2c") == "gpt2-a3f2c"


def test_metric_with_a_name_that_trackio_keeps_for_itself_comes_back(followed: MakeFollowed) -> None:
    run = followed("trackio")
    with new_run(run.directory, "reserved", "trackio") as training:
        training.log_step(7, step=1.5, metrics=2.5)
    run.follow()

    assert {(point.global_step, point.metric, point.value) for point in run.received()} >= {
        (7, "step", 1.5),
        (7, "metrics", 2.5),
    }
