"""MLflow: its own database, and its REST interface on loopback, by MLflow's own client and store."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from PIL import Image

from monitoring import read_records
from monitoring.agent.progress import read_progress
from monitoring.trackers import TrackerPoint
from monitoring.trackers.mlflow import _journal_name, _name

from ...processes import is_gone
from ...waiting import wait_until
from ...warm_python import WarmPython
from .conftest import Followed, new_run
from .test_trackers import DELIVER, add_gpu_samples, begin, ordered, shown

SERVER = Path(__file__).with_name("mlflow_server.py")

# What MLflow has of the run in a directory, with its points as they are read back.
HELD = """
import json, sys
from dataclasses import astuple
from pathlib import Path
from typing import Any
from monitoring.follower import RunInfo, follower_options
from monitoring.trackers import mlflow

run, options = RunInfo.read(Path(sys.argv[1])), follower_options("mlflow", {})
found = mlflow._find(mlflow._client(run, options), run)
about = {"status": found.info.status, "name": found.info.run_name}
about |= {"params": found.data.params, "tags": found.data.tags}
print(json.dumps({**about, "points": [astuple(point) for point in mlflow.read_back(run, options)]}))
"""


@pytest.fixture
def run(tmp_path: Path, empty_database: Path, warm_bridge: WarmPython) -> Followed:
    """One whose folder has a database of its own."""
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return Followed(tmp_path / "run", "mlflow", {}, warm_bridge)


def held(run: Followed, **environment: str) -> dict[str, Any]:
    done = run.python.run(["-c", HELD, run.directory], env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    found["points"] = [TrackerPoint(*point) for point in found["points"]]
    return found


def test_mlflow_holds_every_point_once_after_a_restart_of_the_run(run: Followed) -> None:
    run.train(12, status="interrupted", group="matrix 1")
    assert (run.follow().returncode, run.alerts()) == (0, [])
    first = held(run)
    assert (first["status"], first["name"]) == ("KILLED", "run 1")
    run.train(8, first=10, config={"SEED": 2, "NEW": True})
    assert (run.follow().returncode, run.alerts()) == (0, [])

    found = held(run)
    assert ordered(found["points"]) == shown("mlflow", run.sent())
    assert (found["status"], found["params"]) == ("FINISHED", {"SEED": "1", "LIST": "[1,2]", "NEW": "true"})
    ours = {name: value for name, value in found["tags"].items() if name.startswith("monitoring.")}
    last = max(point.seq for point in run.sent())
    assert ours == {
        "monitoring.run_id": run.info.run_id,
        "monitoring.group": "matrix 1",
        "monitoring.changed.SEED": "2",
        "monitoring.seq.metrics.jsonl": str(last),
        "monitoring.step": "17",
    }


def test_agents_of_a_matrix_make_the_tables_of_their_database_in_turn(
    tmp_path: Path, warm_bridge: WarmPython
) -> None:
    """MLflow itself gets into its own way: "table runs already exists"."""
    runs = [Followed(tmp_path / name, "mlflow", {}, warm_bridge) for name in ("a", "b", "c")]
    for run in runs:
        run.train(2)
    agents = [warm_bridge.start(["-m", "monitoring.agent", run.directory]) for run in runs]
    assert [agent.wait(600) for agent in agents] == [0] * 3
    assert [run.alerts() for run in runs] == [[]] * 3
    assert [held(run)["status"] for run in runs] == ["FINISHED"] * 3


def test_delivery_that_is_repeated_doubles_nothing(run: Followed, tmp_path: Path) -> None:
    """A SIGKILL may come between writing the points and recording that they are there."""
    run.train(12)
    assert run.follow().returncode == 0
    whole = held(run)["points"]
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        for name, value in (("seq.metrics.jsonl", "5"), ("step", "4")):
            where = (value, f"monitoring.{name}")
            assert database.execute("UPDATE tags SET value = ? WHERE key = ?", where).rowcount == 1
    (run.directory / "followers.json").unlink()
    assert run.follow().returncode == 0
    assert held(run)["points"] == whole
    assert ordered(whole) == shown("mlflow", run.sent())


def test_delivery_loses_and_doubles_nothing_when_killed_at_random_moments(run: Followed) -> None:
    run.train(60)
    samples = add_gpu_samples(run.directory, 1e9, 1e9 + 5, 20)
    of_host = (run.directory / "gpu_stats.jsonl").read_bytes()
    (run.directory / "gpu_stats.node-2.jsonl").write_bytes(of_host)
    chance = random.Random(11)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    for life in range(4):
        count = 15 if life < 3 else 0
        with run.python.start(["-c", DELIVER, run.directory, "mlflow", 6, life, count], **pipes) as process:
            begin(process)
            if count:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, 0.15))
                process.kill()
        assert (process.returncode == 0) == (count == 0)
    assert (run.follow().returncode, run.alerts()) == (0, [])  # another host's samples, too
    found = held(run)["points"]
    assert ordered([it for it in found if not it.event.startswith("gpu")]) == shown("mlflow", run.sent())
    assert ordered([it for it in found if it.event == "gpu"]) == shown("mlflow", samples)
    others = [replace(it, event="gpu@node-2") for it in samples]
    assert ordered([it for it in found if it.event == "gpu@node-2"]) == shown("mlflow", others)


def test_server_gets_every_point_once_also_after_it_was_down(
    run: Followed, tmp_path: Path, root: Path
) -> None:
    run.train(6)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with run.python.start([SERVER, f"sqlite:///{tmp_path}/mlflow.db"], **pipes) as server:
        address = server.stdout.readline().strip() if server.stdout else ""
        at = {"MLFLOW_TRACKING_URI": address}
        assert (run.follow(**at).returncode, run.alerts()) == (0, [])
        run.train(4, first=7)
        train_with_a_picture(run)
        nobody = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
        failed = run.catch_up(root, **nobody)
        assert failed.returncode == 2
        assert failed.stderr.startswith(f"error: {run.directory}: mlflow: ")
        assert "127.0.0.1" in failed.stderr
        assert run.catch_up(root, **at).returncode == 0
        found = held(run, **at)
    assert ordered(found["points"]) == shown("mlflow", run.sent())
    assert found["status"] == "FINISHED"
    assert held(run)["points"] == found["points"]  # in the database behind the server
    [kept] = (tmp_path / "artifacts").glob("**/images/a~b+step+3+*.png")
    assert kept.read_bytes() == (run.directory / "red.png").read_bytes()


def test_server_that_hangs_is_an_alert_until_it_has_every_point(run: Followed, tmp_path: Path) -> None:
    run.train(6, config={"ALERT_TRACKER_BEHIND_SECONDS": 0.5})

    def about_mlflow() -> list[tuple[object, object]]:
        alerts = (it for it, _ in read_records(run.directory / "alerts.jsonl"))
        behind = [it for it in alerts if it["rule"] == "tracker_behind" and it["subject"] == "mlflow"]
        return [(it["state"], it["value"]) for it in behind]

    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with run.python.start([SERVER, f"sqlite:///{tmp_path}/mlflow.db"], **pipes) as server:
        assert server.stdout is not None
        environment = {**os.environ, "MLFLOW_TRACKING_URI": server.stdout.readline().strip()}
        server.send_signal(signal.SIGSTOP)
        with run.python.start(["-m", "monitoring.agent", run.directory], env=environment) as agent:
            wait_until(lambda: about_mlflow() == [("firing", 10.0)], "an alert")
            server.send_signal(signal.SIGCONT)
            assert agent.wait() == 0
    assert about_mlflow() == [("firing", 10.0), ("resolved", 0.0)]
    assert ordered(held(run)["points"]) == shown("mlflow", run.sent())


# Has MLflow's own client log the picture of a run that we have logged; prints their artifacts with contents.
BOTH = """
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any
from PIL import Image
from monitoring.follower import RunInfo, follower_options
from monitoring.trackers import mlflow

run = RunInfo.read(Path(sys.argv[1]))
client = mlflow._client(run, follower_options("mlflow", {}))
run_id = mlflow._find(client, run).info.run_id

def images() -> set[str]:
    return {it.path for it in client.list_artifacts(run_id, "images")}

def told(paths: set[str]) -> list[Any]:
    contents = {path: Path(client.download_artifacts(run_id, path)).read_bytes() for path in paths}
    parts = {path: path.split("+") for path in paths}
    return sorted((*parts[it][:5], parts[it][5:][1:], sha256(contents[it]).hexdigest()) for it in paths)

ours = images()
print(len(ours), client.get_run(run_id).data.tags["mlflow.loggedImages"])
time = int(min(ours).split("+")[4])
client.set_tag(run_id, "mlflow.loggedImages", "no")
with Image.open(run.directory / "red.png") as picture:
    client.log_image(run_id, picture, key="a/b", step=3, timestamp=time)
print(told(ours) == told(images() - ours), client.get_run(run_id).data.tags["mlflow.loggedImages"])
"""


def train_with_a_picture(run: Followed) -> None:
    with new_run(run.directory, "digits", "mlflow") as training:
        Image.new("RGB", (300, 200), "red").save(run.directory / "red.png")
        training.log_step(3, train_loss=0.5)
        training.log_eval(3, split="inference", pictures={"a/b": "red.png"})
        training.log_step(4, train_loss=0.25)


def test_picture_is_what_mlflows_own_client_makes_of_it(run: Followed, tmp_path: Path) -> None:
    """Also where it is delivered again, as after a SIGKILL."""
    train_with_a_picture(run)
    for _ in range(2):
        done = run.follow()
        assert (done.returncode, done.stderr, run.alerts()) == (0, "", [])
        assert ordered(held(run)["points"]) == shown("mlflow", run.sent())
        with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
            database.execute("UPDATE tags SET value = '0' WHERE key LIKE 'monitoring.s%'")
        (run.directory / "followers.json").unlink()
    quiet = {**os.environ, "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
    told = run.python.run(["-c", BOTH, run.directory], env=quiet)
    assert (told.stderr, told.stdout.splitlines()) == ("", ["2 True", "True True"])


def test_points_are_delivered_where_pictures_cannot_be_kept(run: Followed, tmp_path: Path) -> None:
    train_with_a_picture(run)
    (tmp_path / "mlartifacts").touch()
    done = run.follow()
    assert (done.returncode, run.alerts()) == (0, [])
    assert json.loads(done.stderr)["message"].startswith("picture 'a/b' is not in MLflow: NotADirectoryError")
    assert ordered(held(run)["points"]) == shown("mlflow", run.sent())


def test_value_that_is_not_a_number_is_no_point_and_is_flagged(run: Followed) -> None:
    with new_run(run.directory, "digits", "mlflow") as training:
        training.log_step(1, train_loss=float("nan"), grad_norm=float("-inf"), lr=0.5)
    assert run.follow().returncode == 0
    found = {(point.metric, point.value) for point in held(run)["points"]}
    assert {pair for pair in found if pair[0] != "cpu_mem_rss_mb"} == {("lr", 0.5), ("nan_inf_detected", 1)}


def test_run_that_gets_mlflow_later_holds_everything(run: Followed, root: Path) -> None:
    with new_run(run.directory, "digits") as training:
        for step in range(1, 6):
            training.log_step(step, train_loss=1 / step)
        training.finish(best_val_loss=0.5)
    assert run.follow().returncode == 0
    added = run.catch_up(root, "TRACKER=mlflow")
    assert (added.returncode, added.stderr) == (0, "")
    assert f"{run.directory}: mlflow: 6 new records, 6 in all\n" in added.stdout
    found = held(run)
    assert (ordered(found["points"]), found["status"]) == (shown("mlflow", run.sent()), "FINISHED")


# Lets a process of its own bring MLflow up to date, as an agent does whose journal is far behind.
APART = """
import sys
from pathlib import Path
from monitoring.agent.catch_up_process import Apart
from monitoring.follower import RunInfo
from monitoring.journal.alerts import Alerts

run = RunInfo.read(Path(sys.argv[1]))
told = []
assert Apart(Alerts(run.directory))(run, "mlflow", {}, lambda progress, count: told.append(progress.seq))
print(told[-1])
"""


def test_mlflow_catches_up_in_a_process_of_its_own(run: Followed) -> None:
    """It dies with the one that started it, however far it is; the next one completes it."""
    run.train(40)
    with run.python.start(["-c", APART, run.directory]) as agent:
        started = wait_until(lambda: psutil.Process(agent.pid).children(), "a process that catches up")
        agent.kill()
    wait_until(lambda: all(map(is_gone, started)), "its end")
    done = run.python.run(["-c", APART, run.directory])
    # the start, 40 steps, an evaluation, an epoch and the end
    assert (done.stdout, done.stderr) == ("44\n", "")
    assert (run.follow().returncode, run.alerts()) == (0, [])
    found = held(run)
    assert (ordered(found["points"]), found["status"]) == (shown("mlflow", run.sent()), "FINISHED")


MOST_BYTES = 5_000


def test_records_that_a_server_refuses_are_skipped_alone(run: Followed, tmp_path: Path) -> None:
    """One is of a time that MLflow does not take, two are larger than a proxy lets through."""
    wide = {f"a_long_name_of_a_metric_{number:03}": number for number in range(60)}
    with new_run(run.directory, "digits", "mlflow") as training:
        for step in range(1, 31):
            training.log_step(step, train_loss=1 / step, **(wide if step in (12, 24) else {}))
    journal = run.directory / "metrics.jsonl"
    records = [record for record, _ in read_records(journal)]
    records[4]["time"] = -5.0
    journal.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [SERVER, f"sqlite:///{tmp_path}/mlflow.db", MOST_BYTES]
    with run.python.start(command, **pipes) as server:
        address = server.stdout.readline().strip() if server.stdout else ""
        for _ in range(2):  # the second agent has nothing to deliver, and nothing to report
            assert run.follow(MLFLOW_TRACKING_URI=address).returncode == 0
    [alert] = run.alerts()
    assert alert.startswith("mlflow: refuses record 5 (step at step 5): ValueError: INVALID_PARAMETER_VALUE")
    assert alert.endswith("; it is skipped, followers.json counts")
    progress = read_progress(run.directory)["mlflow"]
    assert (progress.seq, progress.refused) == (31, 3)
    assert "record 24 (step at step 24)" in str(progress.refusal)
    expected = [point for point in run.sent() if point.seq not in (5, 12, 24)]
    assert ordered(held(run)["points"]) == shown("mlflow", expected)


NAMES = ["acc@1", "f1(macro) %", "a//b", "../up", ".", "/", "seq/step", "ü:3a:", "x" * 249, "plain.name-1 /b"]


def test_names_and_steps_that_mlflow_refuses_come_back(run: Followed) -> None:
    assert [_journal_name(_name(name)) for name in NAMES] == NAMES
    with new_run(run.directory, "any/name?", "mlflow") as training:
        training.log_step(1, **{name: number for number, name in enumerate([*NAMES, "y" * 400])})
        step: Any = "abc"
        for _ in range(3):  # at step 1, too, and all in one millisecond
            training.log_step(step, train_loss=0.5)
    assert (run.follow().returncode, run.alerts()) == (0, [])
    points = held(run)["points"]
    assert [(it.seq, it.global_step) for it in points if it.metric == "train_loss"] == [
        (2, 1),
        (3, 1),
        (4, 1),
    ]
    found = {point.metric: point.value for point in points}
    assert {name: found[name] for name in NAMES} == {name: number for number, name in enumerate(NAMES)}
    assert [value for name, value in found.items() if name.startswith("y" * 241 + "-")] == [len(NAMES)]
