"""A matrix of anybody's command on a Slurm cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ....slurm_cluster import SlurmCluster, missing

PROGRAM = """
import os, sys
for step in range(3):
    print(f"iter {{step}}: loss {{1 / float(sys.argv[1]):.4f}}, time 1.00ms")
print("job", os.environ["SLURM_JOB_ID"])
"""


def test_runs_are_jobs_with_the_options_that_were_given(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if reason := missing():
        pytest.skip(f"no Slurm here: {reason}")
    # its sockets are in it: the name of this test is longer than a socket's path may be
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    command = [sys.executable, "-m", "kharness", "matrix", "-a", "x=1,2", "--launcher", "slurm"]
    options = ["--launcher-option", "time_limit=5", "--launcher-option", "memory_mb=50"]
    try:
        cluster.start()
        ended = subprocess.run(
            [*command, *options, "--", sys.executable, "-c", PROGRAM, "{x}"],
            cwd=tmp_path,
            env={**os.environ, **cluster.environment},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        cluster.stop()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(": complete: 3 steps in ") == 2
    for run in ("x-1", "x-2"):
        assert "\njob " in (tmp_path / "results" / "latest" / run / "output.log").read_text()
