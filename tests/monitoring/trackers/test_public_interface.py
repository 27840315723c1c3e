"""W&B and Trackio of a release that was not tested: their public interfaces, really called.

The packages are those that are pinned, beside metadata that says another version: what is compared is what
they and this project's own writers make of the same journal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring import read_records
from monitoring.trackers import TrackerPoint, trackio, wandb
from monitoring.trackers._trackio_public import STATE
from monitoring.trackers._wandb_log import read_log
from monitoring.trackers._wandb_records import row_of

from ...waiting import wait_until
from .conftest import Followed, MakeFollowed, WandbServer, new_run
from .test_alerts import EXPECTED, in_wandb, raise_alerts

TRACKERS = ["trackio", "wandb"]
RELEASE = "99.1"

# The agent, with the metadata of another release before that of the real one.
AGENT = """
import sys
from monitoring.agent.follow import leave, main
sys.path.insert(0, sys.argv[1])
leave(main(sys.argv[2:]))
"""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder to put before others on sys.path: both packages have another version then."""
    for name in TRACKERS:
        about = tmp_path / "release" / f"{name}-{RELEASE}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {RELEASE}\n")
    return tmp_path / "release"


def follow(run: Followed, release: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["-c", AGENT, release, run.directory]
    return run.python.run(command, env={**os.environ, **environment}, timeout=600)


# Prints the points that a tracker gives back; Trackio's are asked for by its command, a Python of its own.
RECEIVED = """
import json, sys
from dataclasses import astuple
from pathlib import Path
from monitoring.follower import RunInfo, follower_module, follower_options

run, tracker = RunInfo.read(Path(sys.argv[1])), sys.argv[2]
found = follower_module(tracker).read_back(run, follower_options(tracker, {}))
print(json.dumps([astuple(point) for point in found]))
"""


def received(run: Followed) -> list[TrackerPoint]:
    done = run.python.run(["-c", RECEIVED, run.directory, run.tracker], timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    points = [TrackerPoint(*point) for point in json.loads(done.stdout)]
    return sorted(points, key=lambda point: (point.seq, point.metric))


def in_wandb_log(run: Followed) -> list[tuple[object, ...]]:
    """The rows of the one log, but for `_runtime`, which W&B measures itself."""
    [log] = run.directory.glob("wandb/offline-run-*/run-*.wandb")
    rows = [row_of(wandb._record(stored.data)) for stored in read_log(log)]
    return [tuple(sorted(row.items())) for row in map(without_runtime, filter(None, rows))]


def without_runtime(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "_runtime"}


def in_trackio(run: Followed) -> list[tuple[object, ...]]:
    """The rows of every run of that name, whatever its id is."""
    project = trackio.project_name(run.info.project)
    query = f"SELECT step, metrics FROM metrics WHERE run_name = '{run.info.name}' ORDER BY id"
    rows = trackio._query(project, query)
    return [(row["step"], *sorted(orjson.loads(row["metrics"]).items())) for row in rows]


def alerts_in_trackio(run: Followed) -> list[tuple[object, ...]]:
    project = trackio.project_name(run.info.project)
    rows = trackio._query(project, "SELECT title, text, level FROM alerts ORDER BY id")
    return [(row["title"], row["text"], row["level"]) for row in rows]


ROWS: dict[str, Callable[[Followed], list[tuple[object, ...]]]] = {
    "trackio": in_trackio,
    "wandb": in_wandb_log,
}


def note_on(tracker: str) -> str:
    bounds = {"trackio": trackio.SUPPORTED, "wandb": wandb.SUPPORTED}[tracker]
    return (
        f"{tracker} {RELEASE} is outside the releases that were tested ({bounds}): its public interface is "
        "used, which is slower; an agent that is started again writes the whole run again"
    )


@pytest.mark.parametrize("tracker", TRACKERS)
def test_other_release_holds_what_the_tested_one_does_and_back(
    followed: MakeFollowed, release: Path, tracker: str
) -> None:
    run = followed(tracker)
    project = f"public-{tracker}"
    run.train(12, status="interrupted", project=project)
    run.train(9, first=8, project=project, config={"SEED": 1, "LIST": [1, 2], "_own": 3})
    raise_alerts(run.directory)
    assert run.follow().returncode == 0
    own = ROWS[tracker](run)
    assert len(own) == len({point.seq for point in run.sent()})

    done = follow(run, release)
    assert (done.returncode, done.stdout) == (0, "")
    assert ROWS[tracker](run) == own
    assert received(run) == sorted(run.sent(), key=lambda point: (point.seq, point.metric))
    if tracker == "wandb":
        assert in_wandb(run) == EXPECTED
    else:
        assert alerts_in_trackio(run) == [shown[:3] for shown in EXPECTED]
    told = [
        (alert["severity"], alert["message"]) for alert, _ in read_records(run.directory / "alerts.jsonl")
    ]
    assert told[5:] == [("info", note_on(tracker))]

    assert run.follow().returncode == 0
    assert ROWS[tracker](run) == own


@pytest.mark.parametrize("tracker", TRACKERS)
def test_killed_agents_of_another_release_lose_and_double_nothing(
    followed: MakeFollowed, release: Path, tracker: str
) -> None:
    run = followed(tracker)
    begun = {"trackio": STATE, "wandb": "wandb/offline-run-*/run-*.wandb"}[tracker]
    run.train(300, status=None, project=f"killed-{tracker}")
    for _ in range(2):
        for path in run.directory.glob(begun):
            path.unlink()
        with run.python.start(["-c", AGENT, release, run.directory]) as agent:
            wait_until(lambda: list(run.directory.glob(begun)) or agent.poll() is not None)
            assert agent.poll() is None
            agent.send_signal(signal.SIGKILL)
            agent.wait()
    run.train(5, first=300, project=f"killed-{tracker}")

    assert follow(run, release).returncode == 0
    rows = ROWS[tracker](run)
    assert len(rows) == len({point.seq for point in run.sent()})
    assert received(run) == sorted(run.sent(), key=lambda point: (point.seq, point.metric))


def test_other_release_uploads_the_run_when_it_has_ended(
    followed: MakeFollowed, release: Path, wandb_server: WandbServer
) -> None:
    run = followed("wandb")
    run.train(5)
    assert follow(run, release, **wandb_server.environment()).returncode == 0

    [(run_id, uploaded)] = wandb_server.runs.items()
    assert (run_id, uploaded.name, uploaded.exit_code) == (run.info.run_id, "run 1", 0)
    shown = [without_runtime(row) for row in uploaded.rows()]
    assert [tuple(sorted(row.items())) for row in shown] == in_wandb_log(run)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_training_prints_what_is_different_with_another_release(
    tracker: str,
    release: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(release)
    new_run(tmp_path / "run", "digits", tracker).finish("complete")
    printed = capsys.readouterr().err
    assert " ".join(printed.split()) == f"note: {note_on(tracker)}"
    assert max(map(len, printed.splitlines())) < 80
    monkeypatch.setenv("MONITORING_ANY_VERSION", "y")
    new_run(tmp_path / "run", "digits", tracker).finish("complete")
    assert capsys.readouterr().err == ""
