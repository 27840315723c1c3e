"""One id in everything that a run writes, on every rank: it joins the lines of all its files."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ..conftest import wait_for_delivery

# One rank of a training whose gradient explodes, with a GPU monitor of its own and a process that it starts.
RANK = """
import os, subprocess, sys, time
from pathlib import Path
from monitoring import Run
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback
directory, rank = Path(sys.argv[1]), int(os.environ["RANK"])
about = {"gpu_monitor": {"interval": 0.1}, "trackers": {}} if rank == 0 else {}
with Run(directory, name="two ranks", project="digits", config={}, rank=rank, **about) as run:
    run.start(model={}, training={"num_steps": 3})
    callback = TrainingMonitorCallback(GPUMonitor(0, 0.1, log_dir=directory / "gpu_logs" / str(rank)))
    callback.on_train_begin()
    for step in range(1, 4):
        callback.on_step_begin()
        callback.on_step_end(step=step, epoch=1, loss=1.0, lr=0.1, grad_norm=60.0, throughput=1.0)
        run.log_step(step, train_loss=1.0, grad_norm=60.0)
    while not list((directory / "gpu_logs" / str(rank)).glob("gpu_metrics*")):
        time.sleep(0.05)
    callback.on_train_end()
    show = "import os; print(os.environ['MONITORING_CORRELATION_ID'])"
    print(subprocess.run([sys.executable, "-c", show], capture_output=True, text=True).stdout, end="")
"""

# Of the moment when a monitor began, at any hour of any day.
STAMP = r"_\d{8}_\d{6}$"


@pytest.fixture
def run(simulated_nvml: SimulatedNvml, tmp_path: Path) -> tuple[Path, list[str]]:
    """The directory of a run of two ranks, and the id in the processes that these started."""
    simulated_nvml.write("gpus 2")
    directory = tmp_path / "run"
    environment = {**os.environ, **simulated_nvml.environment()}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(directory)],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    ids = [rank.communicate(timeout=600)[0].strip() for rank in ranks]
    wait_for_delivery(directory)  # an agent that was only started does not follow it yet
    return directory, ids


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_file_of_every_rank_has_the_id_of_the_run(run: tuple[Path, list[str]]) -> None:
    directory, ids = run
    run_id = json.loads((directory / "run.json").read_text())["run_id"]
    assert ids == [run_id, run_id]
    logs = {path.relative_to(directory): lines(path) for path in directory.glob("gpu_logs/*/*")}
    kinds = ("gpu_metrics", "monitor_log", "training_metrics")
    assert sorted((path.parent.name, re.sub(STAMP, "_STAMP", path.stem)) for path in logs) == [
        (rank, f"{kind}_STAMP") for rank in ("0", "1") for kind in kinds
    ]
    journals = {path.name: lines(path) for path in directory.glob("*.jsonl")}
    assert set(journals) == {"metrics.jsonl", "metrics.rank0001.jsonl", "gpu_stats.jsonl", "alerts.jsonl"}
    starts = [journals.pop("metrics.jsonl")[:1], journals.pop("metrics.rank0001.jsonl")[:1]]
    found = [*starts, *journals.values(), *logs.values()]
    assert all(found)
    assert {line.get("correlation_id") for file in found for line in file} == {run_id}
    with (directory / "metrics.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["correlation_id"] == run_id
    assert (directory / "agent.log").read_text() == ""


def test_agent_log_has_the_id_beside_what_nothing_caught(tmp_path: Path) -> None:
    run = {
        "run_id": "c0ffee",
        "tracking": {"project": "p", "name": "n", "group": None, "trackers": {}},
        "config": {},
        "attempts": [{"attempt": 1}],
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    command = [sys.executable, "-m", "monitoring.agent", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    [line] = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    told = {name: line[name] for name in ("level", "logger", "message", "correlation_id", "rank")}
    assert told == {
        "level": "ERROR",
        "logger": "monitoring.agent",
        "message": "agent: KeyError: 'host'",
        "correlation_id": "c0ffee",
        "rank": 0,
    }
    assert line["exception"].startswith("Traceback")


def test_agent_log_has_the_warnings_of_libraries_and_what_ends_a_thread() -> None:
    code = (
        "import logging, threading, warnings; from monitoring.agent.log import log_as_json\n"
        "log_as_json('c0ffee', libraries=True)\n"
        "logging.getLogger('sink').info('connected'); logging.getLogger('sink').warning('slow: %d s', 9)\n"
        "warnings.warn('old', FutureWarning)\n"
        "thread = threading.Thread(target=lambda: 1 / 0, name='tensorboard'); thread.start(); thread.join()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line["logger"], line["message"].splitlines()[0]) for line in told] == [
        ("WARNING", "sink", "slow: 9 s"),
        ("WARNING", "py.warnings", "<string>:4: FutureWarning: old"),
        ("ERROR", "monitoring.agent", "tensorboard: ZeroDivisionError: division by zero"),
    ]
    assert {line["correlation_id"] for line in told} == {"c0ffee"}
