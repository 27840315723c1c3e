"""Run directories whose agents end with the test, and waiting for what agents do."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from monitoring.agent.follow import undelivered
from monitoring.agent.lock import is_followed
from monitoring.agent.starter import AgentStarter

from ..conftest import OF_AGENTS, OFFLINE
from ..made_once import made_once
from ..processes import kill_process
from ..waiting import wait_until
from ..warm_python import WarmPython

RunProgram = Callable[..., str]

T = TypeVar("T")

# In the command lines of what forks agents.
FORKING = "monitoring.agent.starter"


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Path]:
    """A directory for runs; agents of them that are still there when the test ends are killed."""
    yield tmp_path
    for process in agents_of(tmp_path):
        kill_process(process)


@pytest.fixture
def run_dir(results: Path) -> Path:
    """A run directory."""
    return results / "run"


@pytest.fixture(scope="session")
def agent_starter() -> Iterator[AgentStarter]:
    """Starter that forks agents for a matrix."""
    starter = AgentStarter(os.environ)
    yield starter
    starter.close()


@pytest.fixture
def forked_agents(agent_starter: AgentStarter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first agent of each run of this process is a fork of the starter's, as a cell's is."""
    for name, value in agent_starter.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def warm_monitoring() -> Iterator[WarmPython]:
    """Starts trainers, agents and bridges without trackers, as forks that have imported what they need."""
    warm = WarmPython("monitoring.run", "monitoring.bridge.*", "compiled_lines", *OF_AGENTS)
    yield warm
    warm.close()


@pytest.fixture
def bare_python(root: Path, tmp_path: Path) -> Callable[[str], str]:
    """Runs code in tmp_path, with only what monitoring itself needs; returns what it prints."""
    import orjson

    for package in (orjson, psutil):
        (tmp_path / package.__name__).symlink_to(Path(package.__file__ or "").parent)

    def run(code: str) -> str:
        command, path = [sys.executable, "-S", "-c", code], f"{root / 'lib'}:{tmp_path}"
        return subprocess.run(
            command, env={"PYTHONPATH": path}, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    return run


def agents_of(directory: Path) -> list[psutil.Process]:
    """The living agents of a run, or of the runs below a directory; also those that a starter has forked."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError, psutil.Error):  # gone meanwhile
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            if FORKING in command and _is_agent(pid):
                command = ["monitoring.agent", os.path.dirname(os.readlink(f"/proc/{pid}/fd/2"))]
            place = command.index("monitoring.agent") + 1 if "monitoring.agent" in command else 0
            if place and Path(command[place]).is_relative_to(directory):
                found.append(psutil.Process(pid))
    return without_children(found)


def without_children(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Without what these have just begun: a child has its parent's command line until it has called exec."""
    known, found = {process.pid for process in processes}, []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.ppid() not in known:
                found.append(process)
    return found


def agent_of(directory: Path) -> psutil.Process:
    """The one agent of a run, once there is one."""
    [agent] = wait_until(lambda: agents_of(directory), "an agent")
    return agent


def _is_agent(pid: int) -> bool:
    """Whether a process is a forked agent, told by its open files: its command line is that of its parent."""
    standard = [os.path.basename(os.readlink(f"/proc/{pid}/fd/{number}")) for number in (0, 1, 2)]
    logs = [fnmatch(name, "agent*.log") for name in standard]
    return standard[0] == "null" and logs[1:] == [True, True] and os.getsid(pid) == pid


def wait_for_delivery(directory: Path) -> None:
    """Until every follower has all, and the agent is gone."""
    wait_until(lambda: not undelivered(directory) and not is_followed(directory), "delivery")


CREATE = """
import sys
from mlflow.tracking import MlflowClient
MlflowClient(sys.argv[1]).search_experiments()
"""


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory, warm_bridge: WarmPython) -> Path:
    """One of MLflow's, which it takes seconds to create: once for all workers."""

    def create(folder: Path) -> None:
        done = warm_bridge.run(["-c", CREATE, f"sqlite:///{folder}/mlflow.db"])
        assert done.returncode == 0, done.stderr

    return made_once(tmp_path_factory, "mlflow", create) / "mlflow.db"


@pytest.fixture
def offline() -> dict[str, str]:
    """The environment of programs that look for nothing on the network."""
    return OFFLINE


@pytest.fixture
def run_program(warm_frameworks: WarmPython, results: Path, forked_agents: None) -> RunProgram:
    """Run the text of a program in the test's folder, to its end; its output."""

    def run(text: str, code: int = 0) -> str:
        program = results / "program.py"
        program.write_text(text)
        done = warm_frameworks.run([program], cwd=results, env={**os.environ, **OFFLINE})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
