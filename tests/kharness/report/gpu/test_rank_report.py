"""The report of a training of several processes, which torch.distributed joins, says who waits for whom."""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kharness.report.gpu.balance import verdict
from kharness.report.report import write_all
from kharness.report.summary import collect
from monitoring import read_records
from monitoring.agent.follow import catch_up

from ....warm_python import WarmPython

HOST = platform.node()
EVEN = """gpus 2
all utilization 100
all memory_used 12000
all power 200
all power_average 200
"""


# Runs a program of which only what it starts has other variables: its agent finds simulated GPUs.
WITH_VARIABLES = """
import json, os, runpy, sys
_, variables, *sys.argv = sys.argv
os.environ.update(json.loads(variables))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def train(warm_torch: WarmPython, root: Path, directory: Path, way: str, gpus: Mapping[str, str]) -> None:
    """Two ranks, of which the second is slow, to their end."""
    program = [str(root / "tests/data/ranks/train.py"), str(directory), "1", way]
    ranks = [
        warm_torch.start(
            ["-c", WITH_VARIABLES, json.dumps(gpus), *program],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    if gpus:
        processes = [f"gpu {index} process {rank.pid} 900\n" for index, rank in enumerate(ranks)]
        Path(gpus["SIMULATED_NVML"]).write_text(EVEN + "".join(processes))
    for rank in ranks:
        _, said = rank.communicate()
        assert rank.returncode == 0, said


@pytest.fixture(scope="module")
def trained(
    root: Path, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory, warm_torch: WarmPython
) -> Path:
    """Two ranks, of which the second is slow, beside two GPUs that look even; the agent has ended."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "nvml.txt").write_text(EVEN)
    gpus = {"LD_LIBRARY_PATH": str(nvml_library.parent), "SIMULATED_NVML": str(folder / "nvml.txt")}
    train(warm_torch, root, folder / "two", "after_backward", gpus)
    catch_up(folder / "two", wait=600.0)
    return folder / "two"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, to do something to."""
    return Path(shutil.copytree(trained, tmp_path / "two"))


@pytest.fixture
def gpu_report(root: Path, warm_torch: WarmPython, run: Path) -> Callable[[], list[str]]:
    def lines() -> list[str]:
        done = warm_torch.run([root / "scripts/gpu_report.py", f"RUN={run}"])
        done.check_returncode()
        return list(done.stdout.splitlines())

    return lines


def without_times(lines: list[str]) -> list[str]:
    """How long a step took differs, and what a loaded machine takes between steps; who was slow does not."""
    lines = [re.sub(r"\d+\.\d+|(?<=\()\d+(?=%)", "N", line).strip() for line in lines]
    return [line.replace(", work outside these phases N", "") for line in lines]


def test_the_slow_rank_is_named_although_the_gpus_look_even(
    gpu_report: Callable[[], list[str]], run: Path
) -> None:
    lines = without_times(gpu_report())
    assert lines[6:] == [
        "Balance: memory CV = N% (Excellent), utilization CV = N% (Excellent), power CV = N% (Excellent)",
        "Ranks: wasted share = N% (1 - mean/max of the ranks' own work, 12 step records); not balanced: the "
        f"other rank waits N ms (N%) of each step for rank 1 ({HOST}, cpu) in forward and backward, "
        "although memory, utilization and power look even",
        f"rank 0 ({HOST}, cpu): N ms per step (data wait N, forward and backward N, optimizer N), waits N",
        f"rank 1 ({HOST}, cpu): N ms per step (data wait N, forward and backward N, optimizer N)  <- slowest",
        f"4 graphs in {run}/graphs",
    ]
    ids = [
        json.loads((run / name).read_text().splitlines()[0])["correlation_id"]
        for name in ("metrics.jsonl", "metrics.rank0001.jsonl", "gpu_stats.jsonl")
    ]
    assert ids == 3 * [json.loads((run / "run.json").read_text())["run_id"]]


def test_what_a_rank_waits_for_others_is_not_its_own_work(trained: Path) -> None:
    ranks, _ = collect(trained).cells[0].ranks
    assert ranks is not None
    assert ranks.slow is not None
    assert ([rank.rank for rank in ranks.ranks], ranks.num_steps, ranks.slow.rank) == ([0, 1], 12, 1)
    assert ranks.slow.phases["forward_backward_seconds"] > 0.1
    # one that does next to nothing, and one of 200 ms whom it waits for
    assert 0.2 < ranks.wasted_share < 0.5
    assert ranks.slow.best_over_mine < 0.6


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("ddp", f"not balanced: the other rank waits for rank 1 ({HOST}, cpu) in forward and backward"),
        (
            "ddp_unwatched",
            "not known whether they are evenly loaded: collective_seconds not recorded by any rank",
        ),
    ],
)
def test_ddp_hides_no_slow_backward(
    warm_torch: WarmPython, root: Path, tmp_path: Path, way: str, said: str
) -> None:
    train(warm_torch, root, tmp_path / way, way, {})
    history, (ranks, _) = collect(tmp_path / way).cells[0].gpus, collect(tmp_path / way).cells[0].ranks
    assert ranks is not None
    assert re.sub(r" [\d.]+ ms \(\d+%\) of each step", "", verdict(history, ranks)) == said
    waits = [
        record["collective_seconds"] for record in steps(tmp_path / way) if "collective_seconds" in record
    ]
    assert len(waits) == (12 if way == "ddp" else 0)
    assert sum(waits) >= 0.1 * len(waits)


def steps(directory: Path) -> list[dict[str, Any]]:
    """Step records of rank 0, which waits."""
    return [dict(it) for it, _ in read_records(directory / "metrics.jsonl") if it["event"] == "step"]


def test_ranks_without_gpus_have_a_report(gpu_report: Callable[[], list[str]], run: Path) -> None:
    (run / "gpu_stats.jsonl").unlink()
    lines = without_times(gpu_report())
    assert lines[:2] == [
        "two - no GPU samples:",
        "Ranks: wasted share = N% (1 - mean/max of the ranks' own work, 12 step records); not balanced: the "
        f"other rank waits N ms (N%) of each step for rank 1 ({HOST}, cpu) in forward and backward",
    ]
    assert lines[-1] == f"1 graph in {run}/graphs"
    with (run / "graphs/gpu_load_balance_analysis.csv").open(newline="") as file:
        rows = [(row["kind"], row["of"], row["quantity"]) for row in csv.DictReader(file)]
    rows = [row for row in rows if row[2] != "outside_seconds"]  # of a loaded machine
    phases = ("data_seconds", "forward_backward_seconds", "optimizer_seconds")
    names = (f"rank {rank} ({HOST}, cpu)" for rank in range(2))
    assert rows == [("rank", name, phase) for name in names for phase in phases]
    write_all(collect(run))
    assert re.search(r"## GPUs\n\n\| run .*\n.*\n\| two \| - \|", (run / "summary.md").read_text())
    found = json.loads((run / "summary.json").read_text())["runs"][0]["gpus"]
    assert (found["gpus"], found["ranks"]["slowest"]) == ([], f"rank 1 ({HOST}, cpu)")
