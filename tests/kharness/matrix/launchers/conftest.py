"""Launched scripts, and the launcher both ways: forks of the fork server, and fresh processes; a real Slurm
cluster, and what jobs on it have written."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kharness.matrix.launchers import open_launcher
from kharness.runs.launch import Exit, Job, Launch, Launcher, Slot

from ....slurm_cluster import SlurmCluster, missing
from ....waiting import wait_until
from ....warm_python import WarmPython
from ..conftest import Checkout, records


class Runs:
    """Runs scripts in folders of their own, and tells how they ended and what they printed."""

    def __init__(self, launcher: Launcher, root: Path) -> None:
        self.launcher = launcher
        self.root = root
        self._number = 0

    def launch(self, script: str, *arguments: str) -> Launch:
        self._number += 1
        model = self.root / f"model{self._number}"
        model.mkdir(parents=True)
        (model / "train.py").write_text(script)
        directory = self.root / f"run{self._number}"
        directory.mkdir()
        return Launch(directory.name, directory, self.root, model.name, {}, arguments)

    def start(self, script: str, *arguments: str, slot: Slot | None = None) -> Job:
        return self.launcher.submit(self.launch(script, *arguments), slot or Slot())

    def end(self, job: Job) -> Exit:
        """Wait for it as the runner does: on what becomes readable, and on the clock."""
        deadline = time.monotonic() + 600
        while (found := self.launcher.poll(job)) is None:
            assert time.monotonic() < deadline, "it did not end within ten minutes"
            select.select(self.launcher.filenos(), [], [], 0.02)
        return found

    def output(self, number: int | None = None) -> str:
        """Output of the newest run, or of the run with a number."""
        return (self.root / f"run{number or self._number}" / "output.log").read_text()

    def run(self, script: str, *arguments: str, slot: Slot | None = None) -> tuple[Exit, str]:
        found = self.end(self.start(script, *arguments, slot=slot))
        return found, self.output()


@pytest.fixture(scope="session")
def launchers() -> Iterator[dict[str, Launcher]]:
    """One of each kind for all tests: a fork server takes two seconds to start."""

    def not_expected(line: str) -> None:
        raise AssertionError(line)

    opened: dict[str, Launcher] = {
        "forked": open_launcher("local", {"LAUNCHER_LOCAL_FORK_SERVER": True}, not_expected),
        "fresh": open_launcher("local", {"LAUNCHER_LOCAL_FORK_SERVER": False}, not_expected),
    }
    yield opened
    for launcher in opened.values():
        launcher.close()


@pytest.fixture
def forked(launchers: dict[str, Launcher], tmp_path: Path) -> Runs:
    return Runs(launchers["forked"], tmp_path / "forked")


@pytest.fixture
def fresh(launchers: dict[str, Launcher], tmp_path: Path) -> Runs:
    return Runs(launchers["fresh"], tmp_path / "fresh")


@pytest.fixture(params=["forked", "fresh"])
def runs(request: pytest.FixtureRequest) -> Runs:
    """Both, one after the other."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Runs)
    return found


class OpenRuns:
    """Opens launchers of a test's own, each with the list of what it says."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._opened: list[Launcher] = []

    def __call__(self, *, fork_server: bool = True) -> tuple[Runs, list[str]]:
        said: list[str] = []
        launcher = open_launcher("local", {"LAUNCHER_LOCAL_FORK_SERVER": fork_server}, said.append)
        self._opened.append(launcher)
        return Runs(launcher, self._root / f"own{len(self._opened)}"), said

    def close(self) -> None:
        for launcher in self._opened:
            launcher.close()


@pytest.fixture
def open_runs(tmp_path: Path) -> Iterator[OpenRuns]:
    with contextlib.closing(OpenRuns(tmp_path)) as opened:
        yield opened


IN_A_FORK = """
import contextlib, importlib, sys
from pathlib import Path
from tests.kharness.matrix.launchers.conftest import OpenRuns

_, module, name, folder = sys.argv
with contextlib.closing(OpenRuns(Path(folder))) as opened:
    getattr(importlib.import_module(module), name)(opened)
"""


@pytest.fixture
def in_a_fork(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> Callable[[Callable[[OpenRuns], None]], str]:
    """Call a function where a fork server, which imports torch, is a fork of an interpreter that has it.

    The answer is how it failed; empty if all that it asserts held.
    """

    def call(function: Callable[[OpenRuns], None]) -> str:
        command = ["-c", IN_A_FORK, function.__module__, function.__name__, tmp_path]
        done = warm_torch.run(command, cwd=root)
        return done.stdout + done.stderr + f"exit code {done.returncode}" if done.returncode else ""

    return call


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := missing():
        pytest.skip(f"no Slurm here: {reason}")
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=2, max_array_size=3)
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(cluster.stop)
        cluster.start()
        yield cluster


@pytest.fixture
def on_slurm(checkout: Checkout, slurm: SlurmCluster, root: Path) -> Iterator[dict[str, str]]:
    """The environment in which the scripts of the checkout find the cluster; its jobs end with the test."""
    yield {**os.environ, **slurm.environment, "PYTHONPATH": str(root / "lib")}
    slurm.ask("scancel", "--quiet", "-u", "root")
    wait_until(lambda: not {"RUNNING", "PENDING", "COMPLETING"} & set(slurm.jobs().values()), "the queue")


def starts(run: Path) -> list[dict[str, Any]]:
    lines = (run / "job.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["event"] == "start"]


def has_stepped(run: Path) -> bool:
    return '"step"' in (run / "metrics.jsonl").read_text()


def losses(run: Path) -> dict[int, float]:
    """The loss of each step; measured again after a resume it must be the same."""
    found: dict[int, float] = {}
    for record in records(run):
        if record["event"] == "step":
            assert found.setdefault(record["global_step"], record["train_loss"]) == record["train_loss"]
    return found
