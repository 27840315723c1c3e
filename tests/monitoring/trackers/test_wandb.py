"""W&B: what its own `sync` makes of our logs, live and later, and what happens without login or network."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from monitoring.follower import RunInfo, follower_options
from monitoring.journal.end_status import EndStatus
from monitoring.journal.records import read_records
from monitoring.trackers import TrackerPoint, wandb
from monitoring.trackers._wandb_log import BLOCK

from ...processes import is_gone
from ...waiting import wait_until
from .conftest import MakeFollowed, WandbServer, new_run, sync


def points_of(rows: list[dict[str, Any]]) -> list[TrackerPoint]:
    """A server's history as points; W&B shows the metrics of an epoch as `epoch/NAME`."""
    columns = ("event", "global_step", "_step", "_timestamp", "_runtime")
    return [
        TrackerPoint(row["_step"], row["event"], row.get("global_step"), name.removeprefix("epoch/"), value)
        for row in rows
        for name, value in row.items()
        if name not in columns
    ]


def ordered(points: list[TrackerPoint]) -> list[TrackerPoint]:
    return sorted(points, key=lambda point: (point.seq, point.metric))


def log_of(run: RunInfo) -> Path:
    [path] = run.directory.glob("wandb/offline-run-*/run-*.wandb")
    return path


def test_wandb_sync_takes_the_run_whole(followed: MakeFollowed, wandb_server: WandbServer) -> None:
    run = followed("wandb", entity="team")
    run.train(40, group="matrix 1")
    run.follow()
    sync(run, wandb_server.environment())

    [(run_id, uploaded)] = wandb_server.runs.items()
    assert run_id == run.info.run_id
    assert (uploaded.project, uploaded.entity) == ("digits", "team")
    assert (uploaded.name, uploaded.group, uploaded.exit_code) == ("run 1", "matrix 1", 0)
    assert {name: uploaded.config[name]["value"] for name in ("SEED", "LIST")} == {"SEED": 1, "LIST": [1, 2]}
    assert points_of(uploaded.rows()) != []
    assert ordered(points_of(uploaded.rows())) == ordered(run.sent())
    assert uploaded.summary["train_loss"] == 1 / 40
    assert uploaded.summary["best_val_loss"] == 0.1


def test_wandb_draws_every_metric_over_global_step(followed: MakeFollowed, wandb_server: WandbServer) -> None:
    run = followed("wandb")
    run.train(2)
    run.follow()
    sync(run, wandb_server.environment())

    [uploaded] = wandb_server.runs.values()
    metrics = uploaded.config["_wandb"]["value"]["m"]
    x_axes = {metric["1"]: metrics[metric["5"] - 1]["1"] for metric in metrics if "5" in metric}
    shown = {name for row in uploaded.rows() for name in row if not name.startswith("_")}
    assert x_axes == dict.fromkeys(shown - {"event", "global_step"}, "global_step")


@pytest.mark.parametrize(
    ("status", "code"), [("complete", 0), ("interrupted", 255), ("failed", 1), (None, 1)]
)
def test_end_of_the_run_is_its_exit_code(
    followed: MakeFollowed, wandb_server: WandbServer, status: EndStatus | None, code: int
) -> None:
    run = followed("wandb")
    if status is None:  # a trainer that dies
        train = (
            "from monitoring import Run; from pathlib import Path\n"
            "run = Run(Path('run'), name='n', project='p', config={}, trackers={'wandb': {}}, agent=False)\n"
            "run.log_step(1, train_loss=1.0)\n"
        )
        assert run.python.run(["-c", train], cwd=run.directory.parent).returncode == 0
    else:
        run.train(3, status=status)
    run.follow()
    sync(run, wandb_server.environment())

    assert [uploaded.exit_code for uploaded in wandb_server.runs.values()] == [code]


def test_sync_again_after_a_restart_gives_each_row_once(
    followed: MakeFollowed, wandb_server: WandbServer
) -> None:
    run = followed("wandb")
    run.train(20, status="interrupted")
    run.follow()
    sync(run, wandb_server.environment())
    run.train(20, first=15, config={"SEED": 1, "LIST": [9]})
    run.follow()
    said = sync(run, wandb_server.environment())

    [uploaded] = wandb_server.runs.values()
    assert "Finished syncing" in said
    assert uploaded.config["LIST"]["value"] == [9]
    assert (uploaded.overwritten, uploaded.exit_code) == ([], 0)
    assert ordered(points_of(uploaded.rows())) == ordered(run.sent())


def test_agent_uploads_while_it_follows_when_there_is_a_login(
    followed: MakeFollowed, wandb_server: WandbServer, root: Path
) -> None:
    run = followed("wandb", upload_seconds=600.0)
    run.train(300)
    agent = run.follow(**wandb_server.environment())

    [uploaded] = wandb_server.runs.values()
    assert (agent.returncode, agent.stdout, agent.stderr, run.alerts()) == (0, "", "", [])
    assert (uploaded.overwritten, uploaded.exit_code) == ([], 0)
    assert ordered(points_of(uploaded.rows())) == ordered(run.sent())
    requests = wandb_server.requests
    assert run.catch_up(root, **wandb_server.environment()).returncode == 0
    assert wandb_server.requests == requests  # it knows that everything is there
    assert wandb.where(run.info).startswith(f"{wandb_server.url}/local/digits/runs/{run.info.run_id}")


def test_without_a_network_nothing_is_lost_and_it_is_delivered_later(
    followed: MakeFollowed, wandb_server: WandbServer, root: Path
) -> None:
    run = followed("wandb", upload_seconds=1.0)
    run.train(10)
    with socket.socket() as nobody:  # bound and not listening: connections are refused
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        first = run.catch_up(root, **{**wandb_server.environment(), "WANDB_BASE_URL": url, "PATH": path})
    folder = log_of(run.info).parent
    assert first.returncode == 2
    assert first.stderr.splitlines() == [
        f"error: {run.directory}: wandb: {folder} is not uploaded after 1 s; "
        f"{folder.with_name('sync.log')} may say why",
        f"hint: wandb sync {folder}",
    ]
    assert ordered(run.received()) == ordered(run.sent())

    run_json = run.directory / "run.json"
    run_json.write_text(run_json.read_text().replace('"upload_seconds": 1.0', '"upload_seconds": 600.0'))
    assert run.catch_up(root, **wandb_server.environment()).returncode == 0
    [uploaded] = wandb_server.runs.values()
    assert (uploaded.overwritten, uploaded.exit_code) == ([], 0)
    assert ordered(points_of(uploaded.rows())) == ordered(run.sent())


@pytest.mark.parametrize(
    ("environment", "offline"),
    [({}, False), ({"WANDB_MODE": "offline"}, False), ({"WANDB_MODE": "dryrun"}, False), ({}, True)],
    ids=["no login", "WANDB_MODE=offline", "WANDB_MODE=dryrun", "WANDB_OFFLINE=y"],
)
def test_offline_run_is_whole_and_no_upload_is_started(
    followed: MakeFollowed, wandb_server: WandbServer, environment: dict[str, str], offline: bool
) -> None:
    run = followed("wandb", offline=offline)
    run.train(5)
    server = wandb_server.environment()
    if not environment and not offline:
        del server["WANDB_API_KEY"]
    run.follow(**server, **environment)

    assert (wandb_server.requests, run.alerts()) == (0, [])
    assert ordered(run.received()) == ordered(run.sent())
    assert sorted(path.name for path in (run.directory / "wandb").iterdir()) == [log_of(run.info).parent.name]


UPLOAD = "wandb sync '{}a run/wandb'/offline-run-*"
OR_SYNC = "\n  or make sync RUN='{}a run'"


@pytest.mark.parametrize(
    ("environment", "options", "left", "command"),
    [
        ({}, {}, [], "wandb login\n  " + UPLOAD + OR_SYNC),
        ({"WANDB_MODE": "offline", "WANDB_API_KEY": "k"}, {}, [], UPLOAD + OR_SYNC),
        ({"WANDB_API_KEY": "k"}, {"offline": True}, [], UPLOAD),
        ({"WANDB_API_KEY": "k"}, {}, [], None),
        ({"NETRC": "netrc"}, {}, [], None),
        ({"NETRC": "netrc"}, {}, ["offline-run-1/run-1.wandb"], UPLOAD + OR_SYNC),
        ({"NETRC": "netrc"}, {}, ["offline-run-1/run-1.wandb", ".upload.lock"], None),
        ({"WANDB_MODE": "disabled"}, {}, [], None),
    ],
)
def test_command_that_uploads_what_is_offline(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    options: dict[str, Any],
    left: list[str],
    command: str | None,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value if name != "NETRC" else str(tmp_path / value))
    for name in ("netrc", *(f"a run/wandb/{file}" for file in left)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for here, shown in ((tmp_path, ""), (tmp_path / "elsewhere", f"{tmp_path}/")):
        monkeypatch.chdir(here)
        found = wandb.upload_command(tmp_path / "a run", follower_options("wandb", options))
        assert found == (command and command.replace("{}", shown))


def test_command_that_uploads_names_the_wandb_of_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user of make has no environment active."""
    program = tmp_path / "v e/bin/wandb"
    program.parent.mkdir(parents=True)
    (other := tmp_path / "other").mkdir()
    for folder in (program.parent, other):
        (folder / "wandb").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = []
    for path in (program.parent, other, tmp_path):
        monkeypatch.setenv("PATH", str(path))
        monkeypatch.chdir(tmp_path)
        found.append(wandb.upload_command(tmp_path / "r", follower_options("wandb", {"offline": True})))
    typed = "{0} login\n  {0} sync r/wandb/offline-run-*"
    assert found == [typed.format("wandb"), *[typed.format("'v e/bin/wandb'")] * 2]


def test_disabled_wandb_records_nothing(followed: MakeFollowed) -> None:
    run = followed("wandb")
    run.train(5)
    assert run.follow(WANDB_MODE="disabled").returncode == 0
    assert not (run.directory / "wandb").exists()


def test_log_torn_at_any_byte_goes_on_where_it_is_whole(followed: MakeFollowed, tmp_path: Path) -> None:
    run = followed("wandb")
    run.train(6)
    run.follow()
    log, whole = log_of(run.info), ordered(run.received())
    content = log.read_bytes()
    records = [record for record, _ in read_records(run.directory / "metrics.jsonl")]
    for end in [*range(40), *range(len(content) - 400, len(content))]:
        log.write_bytes(content[:end])
        follower = wandb.open_follower(run.info, follower_options("wandb", {}))
        held = follower.last_seq()
        left = [record for record in records if int(str(record["seq"])) > held]
        if left:
            follower.deliver(left)
        follower.close("complete")
        assert (end, ordered(run.received())) == (end, whole)


def test_record_larger_than_a_block_of_the_log_is_taken(
    followed: MakeFollowed, wandb_server: WandbServer
) -> None:
    run = followed("wandb")
    long = {f"KEY_{number}": "x" * (BLOCK // 3) for number in range(10)}
    run.train(3, config=long)
    run.follow()
    sync(run, wandb_server.environment())

    [uploaded] = wandb_server.runs.values()
    assert {name: uploaded.config[name]["value"] for name in long} == long
    assert ordered(points_of(uploaded.rows())) == ordered(run.sent())


def test_names_that_wandb_refuses_are_taken_in_a_form_that_it_takes(
    followed: MakeFollowed, wandb_server: WandbServer
) -> None:
    run = followed("wandb")
    run.train(2, project='a/b:"c" ü' + "x" * 200, name="n/'\"" + "y" * 200)
    run.follow()
    sync(run, wandb_server.environment())

    [uploaded] = wandb_server.runs.values()
    assert uploaded.project == ('a-b-"c" ü' + "x" * 200)[:128]
    assert uploaded.name == ("n/'\"" + "y" * 200)[:128]


def test_upload_that_outlived_its_agent_gives_way_to_the_next(
    followed: MakeFollowed, wandb_server: WandbServer, tmp_path: Path
) -> None:
    """The agent is killed while its upload waits for more."""
    run = followed("wandb", upload_seconds=600.0)
    run.train(20)
    journal = run.directory / "metrics.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:10]))
    code = f"""
import os, signal
from pathlib import Path
from monitoring import Run
from monitoring.follower import RunInfo, follower_options
from monitoring.journal.records import read_records
from monitoring.trackers import wandb
run = RunInfo.read(Path({str(run.directory)!r}))
follower = wandb.open_follower(run, follower_options("wandb", dict()))
follower.deliver([record for record, _ in read_records(run.directory / "metrics.jsonl")])
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, **wandb_server.environment()}
    run.python.run(["-c", code], env=environment)
    lock = run.directory / "wandb" / ".upload.lock"
    wait_until(lambda: lock.read_text() != "", "the upload")
    upload = psutil.Process(int(lock.read_text()))
    with journal.open("ab") as file:
        file.write(b"".join(lines[10:]))
    assert run.follow(**wandb_server.environment()).returncode == 0

    [uploaded] = wandb_server.runs.values()
    assert is_gone(upload)
    assert (uploaded.overwritten, uploaded.exit_code) == ([], 0)
    assert ordered(points_of(uploaded.rows())) == ordered(run.sent())


def test_run_that_goes_on_right_after_its_end_is_uploaded_whole(
    followed: MakeFollowed, wandb_server: WandbServer
) -> None:
    """Three attempts with an agent each, live: an upload must not take the first end for the last."""
    run = followed("wandb", upload_seconds=600.0)
    for attempt in range(3):
        run.train(200, first=100 * attempt + 1, status="complete" if attempt == 2 else "interrupted")
        assert run.follow(**wandb_server.environment()).returncode == 0

    [uploaded] = wandb_server.runs.values()
    assert (uploaded.overwritten, uploaded.exit_code, run.alerts()) == ([], 0, [])
    assert ordered(points_of(uploaded.rows())) == ordered(run.sent())


def test_sync_of_an_uploaded_run_sends_nothing(
    followed: MakeFollowed, wandb_server: WandbServer, root: Path
) -> None:
    """Its end record has no points, so W&B's log does not show that it came."""
    run = followed("wandb", upload_seconds=600.0)
    run.train(5, status=None)
    with new_run(run.directory, "p", "wandb"):
        pass
    assert run.follow(**wandb_server.environment()).returncode == 0
    log, requests = log_of(run.info).read_bytes(), wandb_server.requests
    seq = len(list(read_records(run.directory / "metrics.jsonl")))
    for new in ("0 new records", "1 new record"):
        done = run.catch_up(root, **wandb_server.environment())
        assert done.stdout.splitlines()[1] == f"{run.directory}: wandb: {new}, {seq} in all"
        (run.directory / "followers.json").unlink()  # now only the log itself can tell
    assert (log_of(run.info).read_bytes(), wandb_server.requests) == (log, requests)


def test_attempt_without_a_point_changes_how_the_run_ended(
    followed: MakeFollowed, wandb_server: WandbServer
) -> None:
    run = followed("wandb", upload_seconds=600.0)
    run.train(5, status="interrupted")
    run.follow(**wandb_server.environment())
    with new_run(run.directory, "p", "wandb"):
        pass
    assert run.follow(**wandb_server.environment()).returncode == 0
    [uploaded] = wandb_server.runs.values()
    assert (uploaded.overwritten, uploaded.exit_code) == ([], 0)
    assert ordered(points_of(uploaded.rows())) == ordered(run.sent())
