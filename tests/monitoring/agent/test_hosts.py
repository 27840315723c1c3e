"""Two hosts: rank 0 here, and rank 1 in a process whose host has another name, with an agent of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from monitoring import Run, read_records
from monitoring.agent.follow import undelivered
from monitoring.agent.hosts.first_rank import FirstRank, first_rank
from monitoring.host.correlation import LAUNCHERS, own_rank
from monitoring.host.name import host_name
from monitoring.journal.rotating_journal import read_rotated

from ...processes import is_gone, kill_process
from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until
from ..conftest import agents_of, wait_for_delivery

pytestmark = pytest.mark.usefixtures("forked_agents")

RANK_1 = """
import sys, time
from pathlib import Path
from monitoring import Run

directory, stop = map(Path, sys.argv[1:3])
with Run(directory, name="n", project="p", config={}, rank=int([*sys.argv, 1][3])) as run:
    run.start(model={"name": "m"}, training={"num_steps": 100})
    step = 100
    while not stop.exists():
        step += 1
        run.log_step(step, train_loss=1.0)
        time.sleep(0.02)
"""

OTHER = {"MONITORING_HOST_NAME": "node1", "LOCAL_RANK": "0", "RANK": "1"}


class Hosts(NamedTuple):
    """A training on two hosts; `end` ends rank 1."""

    run: Run
    process: subprocess.Popen[bytes]
    end: Callable[[], object]

    def stats(self, kind: str) -> list[dict[str, Any]]:
        """Samples that the second host has written so far."""
        return list(read_rotated(self.run.directory / f"{kind}_stats.node1.jsonl"))


@pytest.fixture
def hosts(visible_nvml: SimulatedNvml, run_dir: Path, tmp_path: Path) -> Iterator[Hosts]:
    visible_nvml.write("gpus 2")
    monitors = {"gpu_monitor": {"interval": 0.05}, "machine_monitor": {"interval": 0.05}}
    with Run(run_dir, name="n", project="p", config={}, **monitors) as run:  # type: ignore[arg-type]
        command: list[str | Path] = [sys.executable, "-c", RANK_1, run_dir, tmp_path / "stop"]
        with subprocess.Popen(command, env={**os.environ, **OTHER}) as process:
            visible_nvml.write("gpus 2", "gpu 1 memory_used 50000", f"gpu 1 process {process.pid} 500")
            yield Hosts(run, process, (tmp_path / "stop").touch)
            (tmp_path / "stop").touch()


def of_second_host(directory: Path) -> list[psutil.Process]:
    return [
        it for it in agents_of(directory) if (directory / "agent.node1.log").samefile(f"/proc/{it.pid}/fd/2")
    ]


def test_second_host_is_sampled_until_its_first_rank_has_ended(hosts: Hosts) -> None:
    run = hosts.run
    run.log_step(1, train_loss=1.0)
    wait_until(lambda: hosts.stats("gpu") and hosts.stats("system"), "samples of the second host")
    wait_until(lambda: hosts.stats("system")[-1]["trainer_processes"], "a look at rank 1")
    hosts.end()
    assert hosts.process.wait(600) == 0
    run.finish()
    wait_for_delivery(run.directory)
    wait_until(lambda: agents_of(run.directory) == [], "the end of both agents")  # the other host's as well
    ranks = [record for record, _ in read_records(run.directory / "metrics.rank0001.jsonl")]
    for kind in ("gpu", "system"):
        found = hosts.stats(kind)
        assert [it["seq"] for it in found] == list(range(1, len(found) + 1))
        assert {(it["host"], it["attempt"], it["correlation_id"]) for it in found} == {
            ("node1", 1, run.run_id)
        }
        assert found[-1]["global_step"] == ranks[-2]["global_step"]  # its own rank's, sampled after its end
        first = list(read_rotated(run.directory / f"{kind}_stats.jsonl"))
        assert {it["host"] for it in first} == {host_name()}
    last = hosts.stats("gpu")[-1]
    assert [it["memory_used_mb"] for it in last["multi_gpu_data"]] == [500, 50000]
    assert [path.read_text() for path in sorted(run.directory.glob("agent*.log"))] == ["", ""]
    assert undelivered(run.directory) == {}


def test_agent_of_the_second_host_is_started_again_and_harms_no_training(hosts: Hosts) -> None:
    wait_until(lambda: hosts.stats("gpu"), "a sample of the second host")
    [agent] = wait_until(lambda: of_second_host(hosts.run.directory), "its agent")
    kill_process(agent)
    wait_until(lambda: is_gone(agent), "its end")
    before = hosts.stats("gpu")
    wait_until(lambda: len(hosts.stats("gpu")) > len(before), "a sample of the next agent")
    [second] = of_second_host(hosts.run.directory)
    assert second.pid != agent.pid
    found = hosts.stats("gpu")
    assert [it["seq"] for it in found] == list(range(1, len(found) + 1))
    hosts.process.kill()  # which leaves no end record: its agent ends all the same
    wait_until(lambda: not of_second_host(hosts.run.directory), "the end of the agent")
    assert hosts.process.wait(600) == -9


def test_alerts_of_the_second_host_are_taken_over_once(run_dir: Path) -> None:
    """Its agent reports through its own file: alerts.jsonl has one writer."""

    def add(seq: int, **fields: object) -> None:
        line = {
            "event": "alert",
            "time": 1.0,
            "seq": seq,
            "attempt": 1,
            "rule": "gpu_lost",
            "severity": "error",
        }
        with (run_dir / "alerts.node1.jsonl").open("a") as file:
            file.write(json.dumps({**line, **fields}) + "\n")

    for attempt in (1, 2):
        with Run(run_dir, name="n", project="p", config={}, machine_monitor={"interval": 0.05}):
            if attempt == 1:
                add(1, message="GPU 1 is lost", state="firing", subject="GPU-1")
            add(1 + attempt, message="no GPU", state="firing", subject=None)
        wait_for_delivery(run_dir)
    names = ("rule", "severity", "message", "state", "subject", "source", "source_seq")
    found = [{name: it.get(name) for name in names} for it, _ in read_records(run_dir / "alerts.jsonl")]
    about = {"rule": "gpu_lost", "severity": "error", "state": "firing", "source": "alerts.node1.jsonl"}
    assert found == [
        {**about, "message": "node1: GPU 1 is lost", "subject": "GPU-1", "source_seq": 1},
        {**about, "message": "node1: no GPU", "subject": "node1", "source_seq": 2},
        {**about, "message": "node1: no GPU", "subject": "node1", "source_seq": 3},
    ]


@pytest.mark.parametrize(
    ("environment", "monitors", "is_first"),
    [
        (OTHER, {"gpu_monitor": {}, "machine_monitor": {"interval": 1.0}}, True),
        ({**OTHER, "LOCAL_RANK": "1"}, {"machine_monitor": {"interval": 1.0}}, False),
        ({**OTHER, "MONITORING_HOST_NAME": ""}, {"machine_monitor": {"interval": 1.0}}, False),
        (OTHER, {"machine_monitor": False}, False),
        ({**OTHER, "LOCAL_RANK": "", "SLURM_LOCALID": "0"}, {"gpu_monitor": {"interval": 1.0}}, True),
        ({**OTHER, "LOCAL_RANK": "", "SLURM_LOCALID": "1"}, {"gpu_monitor": {"interval": 1.0}}, False),
        # mpirun in a batch script of Slurm, each of whose processes has Slurm's variables of the script
        (
            {**OTHER, "LOCAL_RANK": "", "SLURM_LOCALID": "0", "MPI_LOCALRANKID": "1"},
            {"gpu_monitor": {}},
            False,
        ),
    ],
)
def test_first_rank_of_another_host_starts_an_agent(
    environment: dict[str, str],
    monitors: dict[str, Any],
    is_first: bool,
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = {"attempts": [{"attempt": 2, "host": host_name()}], **monitors}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    about = {"host": host_name(), "started": 1.5, "pid": 7, "pid_started": None, "command": "x"}
    found = first_rank(run_dir, run, 4, about)
    assert found == (FirstRank(4, 2, "node1", 1.5, 7, None) if is_first else None)
    assert found is None or FirstRank.of(found.argument) == found


@pytest.mark.parametrize(("rank", "local_rank"), LAUNCHERS)
def test_every_launcher_numbers_ranks(
    rank: str, local_rank: str, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"attempts": [{"attempt": 1, "host": "node0"}], "machine_monitor": {"interval": 1.0}}
    about = {"host": "node1", "started": 1.5, "pid": 7, "pid_started": None}
    monkeypatch.setenv(rank, "5")
    assert own_rank() == 5
    for number, is_first in (("0", True), ("1", False)):
        monkeypatch.setenv(local_rank, number)
        assert (first_rank(run_dir, run, 5, about) is not None) == is_first


def test_without_a_launcher_that_numbers_them_the_first_to_come_starts_the_agent(
    run_dir: Path, tmp_path: Path
) -> None:
    stop, stats = tmp_path / "stop", run_dir / "system_stats.node1.jsonl"
    environment = {**os.environ, "MONITORING_HOST_NAME": "node1"}
    with Run(run_dir, name="n", project="p", config={}, machine_monitor={"interval": 0.05}):
        commands = [[sys.executable, "-c", RANK_1, run_dir, stop, rank] for rank in ("1", "2")]
        ranks = [subprocess.Popen(command, env=environment) for command in commands]
        for path in (stats, run_dir / "metrics.rank0001.jsonl", run_dir / "metrics.rank0002.jsonl"):
            wait_until(lambda path=path: path.stat().st_size, path.name)  # type: ignore[misc]
        assert len(of_second_host(run_dir)) == 1
        stop.touch()
        assert [process.wait(600) for process in ranks] == [0, 0]
        wait_until(lambda: not of_second_host(run_dir), "the end of the agent")
    records = list(read_rotated(stats))
    assert [record["seq"] for record in records] == [*range(1, len(records) + 1)]
    assert (run_dir / "agent.node1.log").read_text() == ""
