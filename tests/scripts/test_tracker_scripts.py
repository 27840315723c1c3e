"""`make trackio-test`, `make wandb-test` and `make trackio-view`, as commands."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from ..ports import free_port
from ..warm_python import StartedPython, WarmPython

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(root: Path, tmp_path: Path, warm_python: WarmPython) -> Script:
    """Runs a script by name and words with `NAME=value` arguments; everything is written below tmp_path."""

    def run(command: str, *variables: str, **environment: str) -> subprocess.CompletedProcess[str]:
        name, *words = command.split()
        return warm_python.run(
            [root / f"scripts/{name}.py", *words, f"O={tmp_path / 'out'}", *variables],
            env={**os.environ, **environment},
            cwd=tmp_path,
        )

    (tmp_path / "out").mkdir()
    return run


def test_trackio_test_says_that_all_came_back_and_where_to_look(script: Script) -> None:
    done = script("tracker_test trackio", "CONFIG_TRACKER_PROJECT=digits")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"no .*\n"
        r"sent 1819 made-up points in 310 records: run fake-\S+\n"
        r"read back: every one of them, once\n"
        r"look: trackio show --project digits-test  "
        rf"\(database {os.environ['TRACKIO_DIR']}/digits-test\.db\)\n",
        done.stdout,
    )


def test_trackio_test_fails_when_trackio_takes_nothing(script: Script, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = script("tracker_test trackio", TRACKIO_DIR=str(tmp_path / "file" / "below"))

    assert done.returncode == 3
    assert done.stderr.splitlines()[-2].startswith("error: trackio: ")
    assert done.stderr.splitlines()[-1].startswith("hint: see ")


def test_wandb_test_needs_no_login(script: Script, tmp_path: Path) -> None:
    done = script("tracker_test wandb", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    [folder] = tmp_path.glob("out/results/wandb-test/fake-*/wandb/offline-run-*")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[2:] == [
        "read back: every one of them, once",
        f"look: wandb sync {folder.relative_to(tmp_path)}",
    ]


def test_wandb_test_fails_when_wandb_is_disabled(script: Script) -> None:
    done = script("tracker_test wandb", WANDB_MODE="disabled")

    assert done.returncode == 3
    assert done.stderr.splitlines()[0].startswith(
        "error: wandb: 1819 lost, 0 strange, 0 doubled, for example"
    )
    assert done.stderr.splitlines()[1] == "hint: W&B is disabled (WANDB_MODE); nothing was recorded"


def test_trackio_view_serves_the_project_on_its_port(
    script: Script, root: Path, tmp_path: Path, warm_python: WarmPython
) -> None:
    script("tracker_test trackio", "CONFIG_TRACKER_PROJECT=digits")
    port = free_port()
    variables = [
        f"O={tmp_path / 'out'}",
        "CONFIG_TRACKER_PROJECT=digits-test",
        f"CONFIG_TRACKIO_PORT={port}",
    ]
    view = warm_python.start(
        [root / "scripts/trackio_view.py", *variables],
        env={**os.environ, "BROWSER": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        page = page_at(f"http://127.0.0.1:{port}/?project=digits-test", while_running=view)
    finally:
        view.send_signal(signal.SIGINT)
        said, _ = view.communicate(timeout=600)

    assert "<html" in page
    assert f"project digits-test on port {port}; Ctrl-C ends it" in said


def page_at(address: str, *, while_running: StartedPython) -> str:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and while_running.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            time.sleep(0.1)
    raise AssertionError("no answer")


def test_trackio_view_refuses_a_port_that_is_taken(script: Script) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = script("trackio_view", f"CONFIG_TRACKIO_PORT={port}")

    assert (done.returncode, done.stderr) == (
        2,
        f"error: TRACKIO_PORT={port}: address already in use\n"
        f"hint: make trackio-view CONFIG_TRACKIO_PORT={port + 1}\n",
    )


def test_trackio_view_says_when_a_project_has_no_runs(script: Script) -> None:
    done = script("trackio_view", "CONFIG_TRACKER_PROJECT=digits", f"CONFIG_TRACKIO_PORT={free_port()}")

    assert (done.returncode, done.stderr) == (
        2,
        f"error: digits has no runs in {os.environ['TRACKIO_DIR']}\nhint: make train TRACKER=trackio\n",
    )
