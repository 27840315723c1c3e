"""Agents that a starter forks: like those that a trainer starts itself, and no run depends on it."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from monitoring import Run
from monitoring.agent.follow import undelivered
from monitoring.agent.lock import is_coming, is_followed
from monitoring.agent.process import STARTER
from monitoring.agent.starter import AgentStarter
from monitoring.host.process import process_started

from ...processes import is_gone, open_files
from ...waiting import wait_until
from ..conftest import wait_for_delivery


@pytest.fixture
def starter(monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentStarter]:
    """A starter that the runs of this test find in their environment."""
    opened = AgentStarter(os.environ)
    for name, value in opened.environment.items():
        monkeypatch.setenv(name, value)
    yield opened
    opened.close()


def begin(directory: Path) -> Run:
    run = Run(directory, name="n", project="p", config={})
    run.start(model={"name": "m"}, training={"num_steps": 3})
    run.log_step(1, train_loss=0.5)
    return run


def test_agent_is_seen_to_come_before_it_follows(
    starter: AgentStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(starter.pid, signal.SIGSTOP)
    forked = begin(tmp_path / "forked")
    assert is_coming(forked.directory)
    assert not is_followed(forked.directory)
    os.kill(starter.pid, signal.SIGCONT)
    monkeypatch.delenv(STARTER)
    spawned = begin(tmp_path / "spawned")
    runs = [forked, spawned]
    assert all(is_coming(run.directory) or is_followed(run.directory) for run in runs)
    wait_until(lambda: all(is_followed(run.directory) and not is_coming(run.directory) for run in runs))
    for run in runs:
        run.finish()
    wait_until(lambda: not any(undelivered(run.directory) for run in runs))


def test_agent_that_dies_on_its_way_comes_no_more(starter: AgentStarter, tmp_path: Path) -> None:
    os.kill(starter.pid, signal.SIGSTOP)
    run = begin(tmp_path / "run")
    assert is_coming(run.directory)
    os.kill(starter.pid, signal.SIGKILL)
    wait_until(lambda: not is_coming(run.directory))
    run.finish()  # with an agent of its own
    wait_until(lambda: not undelivered(run.directory))


def agents(directory: Path) -> list[psutil.Process]:
    """Whoever holds the lock of the run's agent."""
    found = []
    for process in psutil.process_iter(["pid"]):
        if str(directory / ".agent.lock") in open_files(process.pid) and process.pid != os.getpid():
            found.append(process)
    return found


def agent_of(directory: Path) -> psutil.Process:
    wait_until(lambda: len(agents(directory)) == 1)
    return agents(directory)[0]


def delivered(directory: Path) -> list[str]:
    if not (directory / "metrics.csv").exists():
        return []
    with (directory / "metrics.csv").open(newline="") as file:
        return [row["event"] for row in csv.DictReader(file)]


def about(process: psutil.Process) -> dict[str, Any]:
    """Properties of a process that do not depend on its parent."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {
        "leads_session": os.getsid(process.pid) == os.getpgid(process.pid) == process.pid,
        "nice": process.nice(),
        "cwd": process.cwd(),
        "cores": process.cpu_affinity(),
        "outputs": [Path(os.readlink(f"/proc/{process.pid}/fd/{fd}")).name for fd in (0, 1, 2)],
        # blocked, ignored and caught; those above 31 are the C library's own
        "signals": [int(line[7:], 16) & 0x7FFFFFFF for line in status if re.match("Sig(Blk|Ign|Cgt)", line)],
        "name": process.name(),
    }


def test_a_forked_agent_is_like_one_that_the_trainer_starts(
    starter: AgentStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for how in ("forked", "own"):
        run = begin(tmp_path / how)
        agent = agent_of(run.directory)
        wait_until(lambda: len(delivered(run.directory)) == 2)  # noqa: B023 - called before the next run begins
        parent = agent.ppid()
        found[how] = about(agent)
        opened = open_files(agent.pid)
        run.finish()
        assert how == "own" or not [name for name in opened if name.startswith(("socket:", "pipe:"))]
        assert parent == (starter.pid if how == "forked" else os.getpid())
        monkeypatch.setenv(STARTER, "")
        wait_until(lambda: not is_followed(run.directory))  # noqa: B023 - called before the next run begins
        assert delivered(run.directory) == ["start", "step", "end"]
        assert undelivered(run.directory) == {}
        assert (run.directory / "agent.log").read_text() == ""
    assert found["forked"] == found["own"]
    assert found["forked"]["nice"] > os.nice(0)


TRAINER = """
import os, sys
from pathlib import Path
from monitoring import Run
run = Run(Path(sys.argv[1]), name="n", project="p", config={})
run.start(model={"name": "m"}, training={"num_steps": 3})
print("started", flush=True)
sys.stdin.read()
"""


def test_agents_outlive_starter_and_trainer(tmp_path: Path) -> None:
    starter, directory = AgentStarter(os.environ), tmp_path / "run"
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, directory],
        env={**os.environ, **starter.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == b"started\n"
    agent = agent_of(directory)
    starter.close()
    assert process_started(starter.pid) is None
    trainer.kill()
    trainer.communicate()
    wait_until(lambda: is_gone(agent))
    assert delivered(directory) == ["start"]
    alerts = [json.loads(line) for line in (directory / "alerts.jsonl").read_text().splitlines()]
    assert [alert["message"] for alert in alerts] == ["the training process is gone and wrote no end record"]


@pytest.mark.parametrize("set_back", [0.0, 3600.0])
def test_a_killed_agent_is_replaced_by_one_of_the_trainers_own(
    starter: AgentStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_back: float
) -> None:
    """Within a second too where the clock was set back by an hour meanwhile."""
    monkeypatch.setattr("monitoring.run.LOOK_EVERY", 0.02)
    monkeypatch.setattr("monitoring.host.backoff.FIRST_DELAY", 0.02)
    run = begin(tmp_path / "run")
    first = agent_of(run.directory)
    first.kill()
    wait_until(lambda: is_gone(first))
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - set_back)
    steps = itertools.count(2)

    def replaced() -> bool:
        run.log_step(next(steps), train_loss=0.5)
        return bool(agents(run.directory))

    wait_until(replaced)
    assert agent_of(run.directory).cmdline()[-2:] == ["monitoring.agent", str(run.directory)]
    run.finish()
    wait_for_delivery(run.directory)


@pytest.mark.parametrize("how", ["killed", "never there", "stopped"])
def test_a_run_without_its_starter_starts_its_agent_itself(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.agent.process.LONGEST_ANSWER", 0.1)
    starter = AgentStarter(os.environ)
    monkeypatch.setenv(STARTER, starter.environment[STARTER] if how != "never there" else "nobody")
    os.kill(starter.pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    if how == "killed":
        wait_until(lambda: psutil.Process(starter.pid).status() == psutil.STATUS_ZOMBIE)
    run = begin(tmp_path / "run")
    run.finish()  # of a starter that is stopped, it is known now that it does not answer
    wait_until(lambda: (run.directory / "followers.json").exists() and not undelivered(run.directory))
    assert delivered(run.directory) == ["start", "step", "end"]
    if how != "killed":
        os.kill(starter.pid, signal.SIGCONT)  # a late second agent finds nothing left to do
    starter.close()
    wait_until(lambda: not is_followed(run.directory) and not agents(run.directory))
    assert delivered(run.directory) == ["start", "step", "end"]


def test_what_is_no_request_is_passed_over(starter: AgentStarter, tmp_path: Path) -> None:
    for nonsense in (b"", b"{", b"[]", b"{}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(f"\0{starter.environment[STARTER]}")
            connection.send(nonsense)
    run = begin(tmp_path / "run")
    assert agent_of(run.directory).ppid() == starter.pid
    run.finish()
    wait_for_delivery(run.directory)
