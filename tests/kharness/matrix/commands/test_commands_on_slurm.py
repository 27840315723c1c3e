"""A run and a matrix of anybody's command on a Slurm cluster."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ....slurm_cluster import SlurmCluster, missing
from ..conftest import Command

PROGRAM = """
import os, sys
for step in range(3):
    print(f"iter {{step}}: loss {{1 / float(sys.argv[1]):.4f}}, time 1.00ms")
print("job", os.environ["SLURM_JOB_ID"])
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := missing():
        pytest.skip(f"no Slurm here: {reason}")
    # its sockets are in it: the name of a test is longer than a socket's path may be
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def on_cluster(cluster: SlurmCluster, tmp_path: Path, kharness: Command) -> Command:
    """Run `kharness WORDS` in the test's folder, where it finds the cluster."""
    return lambda *words: kharness(tmp_path, *words, env={**os.environ, **cluster.environment})


SLURM = ["--launcher", "slurm", "--launcher-option", "time_limit=5", "--launcher-option", "memory_mb=50"]


def test_runs_are_jobs_with_the_options_that_were_given(on_cluster: Command, tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, "{x}"]
    ended = on_cluster("matrix", "-a", "x=1,2", *SLURM, "--", *program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(": complete: 3 steps in ") == 2
    for run in ("x-1", "x-2"):
        assert "\njob " in (tmp_path / "results" / "latest" / run / "output.log").read_text()


def test_runs_that_share_a_job_take_turns(on_cluster: Command, tmp_path: Path) -> None:
    """All that the job has is each one's: how many threads a program starts is its own business."""
    program = [sys.executable, "-c", PROGRAM, "{x}"]
    packed = ["--launcher-option", "cells_per_job=2", "--launcher-option", "cpus=2"]
    ended = on_cluster("matrix", "-a", "x=1,2", *SLURM, *packed, "--", *program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = [tmp_path / "results" / "latest" / run for run in ("x-1", "x-2")]
    logs = [(run / "output.log").read_text().splitlines() for run in runs]
    assert logs[0][-1] == logs[1][-1]
    first, second = [json.loads((run / "status.json").read_text())["attempts"][0] for run in runs]
    assert second["started"] >= first["ended"]


def test_several_seeds_of_a_job_are_jobs_like_it(on_cluster: Command, tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(PROGRAM)
    ended = on_cluster("run", *SLURM, "--", sys.executable, "prints.py", "1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    again = ["matrix", "-a", "seed=1..5", *SLURM, "--", sys.executable, "prints.py", "1", "--seed", "{seed}"]
    assert shlex.split(ended.stdout.splitlines()[-1]) == ["kharness", *again]


def test_single_run_is_a_job_that_another_command_watches_to_its_end(
    on_cluster: Command, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", f"import time; time.sleep(2){PROGRAM}", "1"]
    left = on_cluster("run", *SLURM, "--detach", "--", *program)
    assert left.returncode == 0, left.stdout + left.stderr
    run = (tmp_path / "results" / "latest").resolve()
    assert left.stdout.splitlines()[-1] == f"  kharness continue results/{run.name}"
    ended = on_cluster("continue")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"taken over: results/{run.name}, which the scheduler runs" in ended.stdout
    assert "\njob " in (run / "output.log").read_text()
    assert "1 run: 1 complete" in on_cluster("status").stdout


def test_single_run_that_the_cluster_cannot_take_is_refused(on_cluster: Command, tmp_path: Path) -> None:
    words = ["run", "--launcher", "slurm", "--launcher-option", "partition=nothere", "--", "true"]
    refused = on_cluster(*words)
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "error: --launcher-option partition=nothere: there is no partition nothere"
    )
    assert not (tmp_path / "results").exists()


MEETS = """
import os, pathlib, sys, time
print("on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
pathlib.Path("met-" + sys.argv[1]).touch()
while len(list(pathlib.Path().glob("met-*"))) < 2:
    time.sleep(0.01)
"""


def test_runs_have_the_gpus_that_were_asked_for(on_cluster: Command, tmp_path: Path) -> None:
    """Each run of a packed job gets GPUs of its own; more than a node has is refused."""
    words = ["--", sys.executable, "-c", MEETS, "{x}"]
    refused = on_cluster("matrix", "-a", "x=1,2", *SLURM, "--gpus-per-cell", 3, *words)
    assert refused.stderr.startswith("error: --gpus-per-cell=3 is more than the 2 GPUs per node of ")
    packed = ["--launcher-option", "cells_per_job=2", "--launcher-option", "gpus=2", "--gpus-per-cell", 1]
    ended = on_cluster("matrix", "-a", "x=1,2", *SLURM, *packed, *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = [tmp_path / "results" / "latest" / run for run in ("x-1", "x-2")]
    assert sorted((run / "output.log").read_text().splitlines()[0] for run in runs) == ["on 0", "on 1"]
