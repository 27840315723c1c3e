"""`make sync`: any follower, at any later time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kharness.matrix.running.delivery import delivery_lines
from kharness.runs.command import Command
from monitoring import Run, read_records
from monitoring.agent import wait
from monitoring.agent.follow import undelivered
from monitoring.agent.lock import is_followed
from monitoring.errors import RunBusyError
from monitoring.follower import TRACKERS

from ..monitoring.conftest import agent_of
from ..processes import is_gone
from ..waiting import wait_until
from ..warm_python import WarmPython

ROOT = Path(__file__).resolve().parents[2]

Sync = Callable[..., tuple[int, str, str]]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Two finished runs that nobody has followed."""
    for name in ("a", "b"):
        with Run(tmp_path / "matrix" / name, name=name, project="p", config={}, agent=False) as run:
            run.log_step(1, train_loss=0.5)
    return tmp_path / "matrix"


@pytest.fixture
def sync(root: Path, warm_python: WarmPython) -> Sync:
    """Exit code, output and errors of the script."""

    def run(*variables: str) -> tuple[int, str, str]:
        done = warm_python.run(["scripts/sync.py", *variables], cwd=root)
        return done.returncode, done.stdout, done.stderr

    return run


def test_sync_brings_every_run_of_a_matrix_up_to_date(sync: Sync, matrix: Path) -> None:
    lines = [f"{matrix}/{name}: csv: {{}} new records, 2 in all\n" for name in ("a", "b")]
    assert sync(f"RUN={matrix}") == (0, "".join(lines).format(2, 2), "")
    (matrix.parent / "latest").symlink_to("matrix")
    newest = sync(f"CONFIG_RESULTS_DIR={matrix.parent}")
    assert newest == (0, "".join(lines).format(0, 0), "")


def test_sync_adds_a_tracker_that_the_run_did_not_have(sync: Sync, matrix: Path) -> None:
    code, out, err = sync(f"RUN={matrix}/a", "TRACKER=tensorboard")
    assert (code, err) == (0, "")
    assert out == (
        f"{matrix}/a: csv: 2 new records, 2 in all\n{matrix}/a: tensorboard: 2 new records, 2 in all\n"
    )
    assert list((matrix / "a" / "tensorboard").iterdir())


def test_sync_of_a_run_that_is_complete_has_nothing_new(sync: Sync, matrix: Path) -> None:
    """The end record has no points: no sink of a tracker shows that it came."""
    lines = [f"{matrix}/a: {name}: {{}}, 2 in all\n" for name in ("csv", "tensorboard")]
    for count in ("2 new records", "0 new records"):
        assert sync(f"RUN={matrix}/a", "TRACKER=tensorboard") == (
            0,
            "".join(lines).format(count, count),
            "",
        )
    [events] = (matrix / "a" / "tensorboard").iterdir()

    with Run(matrix / "a", name="a", project="p", config={}, agent=False) as run:
        run.log_step(2, train_loss=0.5)
        written = sync(f"RUN={matrix}/a", "TRACKER=tensorboard")
    lines = [f"{matrix}/a: {name}: 1 new record, 3 in all\n" for name in ("csv", "tensorboard")]
    assert written == (0, "".join(lines), "")
    assert events in (matrix / "a" / "tensorboard").iterdir()


def test_what_is_not_uploaded_is_said(
    sync: Sync, matrix: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", "k")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    run = tmp_path / "offline"
    with Run(run, trackers={"wandb": {}}, agent=False) as opened:
        opened.log(train_loss=1.0)
    upload = f"wandb sync {run}/wandb/offline-run-*\n  or make sync RUN={run}"
    code, out, _ = sync(f"RUN={run}")
    assert (code, out.splitlines()) == (
        0,
        [
            f"{run}: csv: 3 new records, 3 in all",
            f"{run}: wandb: 3 new records, 3 in all",
            "  on this disk, not uploaded; to upload it:",
            *f"  {upload}".split("\n"),
        ],
    )
    kept = "wandb: all points on this disk, not uploaded"
    assert delivery_lines([run], {}, tmp_path) == [kept]
    of_two = f"wandb: all points of 2 runs on this disk, not uploaded; to upload the first:\n  {upload}"
    assert delivery_lines([run, run], {}, tmp_path) == [of_two]
    template = {"words": ["./train"], "environment": {}, "follow": [], "resume": []}
    Command(["./train"], cwd=str(tmp_path), values={}, template=template).write(run)
    # a program prints no command of ours
    assert delivery_lines([run], {}, tmp_path) == [f"{kept}; to upload them:\n  {upload}"]


def test_sync_says_what_is_put_aside(sync: Sync, matrix: Path) -> None:
    journal = matrix / "a" / "gpu_stats.jsonl"
    journal.write_text('{"event":"gpu","seq":1,"attempt":1,"time":0}\n')
    for new in ("3 new records", "0 new records"):
        _, out, _ = sync(f"RUN={matrix}/a", "TRACKER=tensorboard")
        assert out.splitlines()[1] == (
            f"{matrix}/a: tensorboard: {new}, 2 in all; 1 record skipped, "
            "last record 1 (gpu): KeyError: 'aggregate_stats'"
        )


# Trains until there is a file RUN.end, one step every 10 ms, with an agent.
TRAINING = """
import sys, time
from pathlib import Path
from typing import Any
from monitoring import Run, read_records
from monitoring.agent.lock import is_followed
with Run(Path(sys.argv[1]), name="n", project="p", config={}) as run:
    print("begun", flush=True)
    step = 0
    while not Path(f"{sys.argv[1]}.end").exists():
        step += 1
        run.log_step(step, train_loss=1 / step)
        time.sleep(0.01)
"""


def training(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAINING, str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    while not is_followed(directory):
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_sync_of_a_run_that_goes_on_returns_when_its_agent_has_delivered(sync: Sync, tmp_path: Path) -> None:
    with training(tmp_path / "run") as process:
        try:
            code, out, err = sync(f"RUN={tmp_path / 'run'}")
        finally:
            process.kill()
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == (
        f"{tmp_path}/run: it is still training, and its agent has delivered everything so far"
    )


def test_sync_with_a_further_tracker_waits_for_the_agent_and_says_so(
    root: Path, tmp_path: Path, warm_python: WarmPython
) -> None:
    run = tmp_path / "run"
    with training(run) as process:
        command = ["scripts/sync.py", f"RUN={run}", "TRACKER=tensorboard"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        syncing = warm_python.start(command, cwd=root, **pipes)
        assert syncing.stdout is not None
        first = syncing.stdout.readline()
        run.with_suffix(".end").touch()
        assert process.wait() == 0
        out, err = syncing.communicate(timeout=600)
    *_, csv, added = out.splitlines()
    assert (syncing.wait(), err) == (0, "")
    assert first.startswith(f"{run}: waiting for its agent: ")
    count = len(list(read_records(run / "metrics.jsonl")))
    assert csv == f"{run}: csv: 0 new records, {count} in all"
    assert added == f"{run}: tensorboard: {count} new records, {count} in all"


def test_sync_says_that_an_agent_has_died_and_delivers_the_rest(sync: Sync, tmp_path: Path) -> None:
    """An agent killed by its own C library's signal, after the training's end, is reported by sync."""
    run = tmp_path / "run"
    with training(run) as process:
        agent = agent_of(run)
        # by its mark, which is later than its lock's file, others know that it has died
        wait_until(lambda: (run / ".agent.lock").read_text(), "its mark")
        agent.suspend()
        run.with_suffix(".end").touch()
        assert process.wait() == 0
        agent.send_signal(signal.SIGABRT)
        agent.resume()
        # its last thread, which lets go of the lock, may end after its first
        wait_until(lambda: is_gone(agent) and not is_followed(run), "its end")
    count = len(list(read_records(run / "metrics.jsonl")))
    died = "its agent has died; agent.log has its last words"
    lacks = [f"warning: {run}: csv lacks {count} records; {died}; later: make sync RUN={run}"]
    lacking = {run: {"csv": count}}
    assert delivery_lines([run], lacking, tmp_path / "elsewhere") == lacks
    code, out, err = sync(f"RUN={run}")
    assert (code, err, out.splitlines()[0]) == (0, "", f"{run}: {died}")
    [alert] = [record for record, _ in read_records(run / "alerts.jsonl")]
    assert (alert["rule"], alert["severity"], alert["message"]) == ("agent", "warning", died)
    assert "Fatal Python error: Aborted" in (run / "agent.log").read_text()
    assert died not in sync(f"RUN={run}")[1]


def test_sync_gives_up_an_agent_that_gets_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its training runs or has ended; a stopped process stands for whatever keeps it."""
    run = tmp_path / "run"
    monkeypatch.setattr(wait, "PATIENCE", 0.5)
    monkeypatch.setattr(wait, "LAST_PATIENCE", 0.5)
    with training(run) as process:
        agent = agent_of(run)
        agent.suspend()
        wait_until(lambda: undelivered(run), "a record")
        for ends in (False, True):
            if ends:
                run.with_suffix(".end").touch()
                assert process.wait() == 0
            with pytest.raises(RunBusyError, match="its agent gets no further: csv lacks "):
                wait.wait_for_agent(run, lambda line: None, to_its_end=ends)
        agent.kill()


# A run that has ended in a Python that lives on; and its agent, which tries again at once.
ENDED = """
import sys, time
from pathlib import Path
from monitoring import Run
with Run(Path(sys.argv[1]), name="n", project="p", config={}, agent=False) as run:
    run.log_step(1, train_loss=0.5)
print("ended", flush=True)
time.sleep(3600)
"""
AGENT = """
import sys
from monitoring.host import backoff
backoff.FIRST_DELAY = backoff.LONGEST_DELAY = 0.01
from monitoring.agent.follow import leave, main
leave(main([sys.argv[1]]))
"""


def test_an_agent_ends_where_its_tracker_fails_and_python_lives_on(sync: Sync, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", ENDED, run], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ended\n"
            (run / "metrics.csv").mkdir()
            agent = subprocess.run([sys.executable, "-c", AGENT, run], timeout=600)
            code, out, err = sync(f"RUN={run}")
            assert process.poll() is None
        finally:
            process.kill()
    assert (agent.returncode, code, out) == (3, 2, "")
    assert err.startswith(f"error: {run}: csv: [Errno 21] Is a directory")
    messages = [str(record["message"]) for record, _ in read_records(run / "alerts.jsonl")]
    assert messages[1].endswith("not tried again, `make sync` delivers the rest")


# A tracker's library that ends its thread by what is no Exception, as a panic in Rust is.
PANIC = """
import runpy, sys
from monitoring.exporters import csv
def panic(*arguments):
    raise SystemExit(0)
csv.open_follower = panic
sys.argv[1:] = [f"RUN={sys.argv[1]}"]
runpy.run_path("scripts/sync.py", run_name="__main__")
"""


def test_sync_fails_where_a_tracker_ends_without_a_word(root: Path, matrix: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PANIC, matrix / "a"], cwd=root, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {matrix}/a: csv: SystemExit(0)\nhint: try again later\n"


HASTY = """
import runpy, sys
from monitoring.agent import follow
follow.HANGING_AFTER = 1
runpy.run_path("scripts/sync.py", run_name="__main__")
"""


def test_sync_of_a_server_that_never_answers_has_an_end(root: Path, matrix: Path) -> None:
    """It takes connections, as a machine does whose server hangs; MLflow would wait for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", HASTY, f"RUN={matrix}/a", "TRACKER=mlflow"],
            env={**os.environ, "MLFLOW_TRACKING_URI": uri},
            cwd=root,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 2
    assert done.stdout == f"{matrix}/a: csv: 2 new records, 2 in all\n"
    assert f"error: {matrix}/a: mlflow: is not responding\nhint: try again later\n" in done.stderr


def test_sync_says_which_follower_fails_and_delivers_the_others(sync: Sync, matrix: Path) -> None:
    (matrix / "a" / "metrics.csv").mkdir()
    code, out, err = sync(f"RUN={matrix}/a", "TRACKER=tensorboard")
    assert (code, out) == (2, f"{matrix}/a: tensorboard: 2 new records, 2 in all\n")
    assert err.startswith(f"error: {matrix}/a: csv: [Errno 21] Is a directory")


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        (
            ("RUN=/no/such",),
            "error: /no/such does not exist\nhint: name a run or a matrix: RUN=results/latest\n",
        ),
        (
            ("RUN=tests",),
            f"error: {ROOT}/tests is not a run directory: it has no run.json\n"
            "hint: name a directory that a training wrote, such as results/RUN\n",
        ),
        (
            ("RUN=tests", "TRACKER=wandb,../x"),
            f"error: unknown tracker '../x'\nhint: known trackers: {', '.join(TRACKERS.names)}\n",
        ),
    ],
)
def test_sync_refuses_what_it_cannot_do(sync: Sync, variables: tuple[str, ...], error: str) -> None:
    assert sync(*variables) == (2, "", error)
