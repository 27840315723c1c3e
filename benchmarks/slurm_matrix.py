"""A matrix on a Slurm of this machine whose queue is closed: planning, submission, status, taking it over.

python benchmarks/slurm_matrix.py [CELLS]

The cluster is that of the tests: real daemons on loopback. No cell begins, so that what is measured is what
make and Slurm's programs take while a matrix waits; `sdiag` counts what the controller is asked.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.slurm_cluster import SlurmCluster, missing  # noqa: E402

WATCHED = 60
"""Seconds for which a runner that stays is counted."""

# Requests to the controller that a matrix makes.
SUBMITS, ASKS = "REQUEST_SUBMIT_BATCH_JOB", ("REQUEST_JOB_INFO", "REQUEST_JOB_USER_INFO")


def main(argv: list[str]) -> int:
    """Print CPU seconds, wall seconds, memory and requests of each command."""
    cells = int(argv[0]) if argv else 1000
    if reason := missing():
        print(f"{cells} cells are not measured: no Slurm here: {reason}")
        return 0
    with (
        tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-") as output,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at,
    ):
        cluster = SlurmCluster(Path(at) / "slurm", max_jobs=10 * cells + 100)
        with contextlib.ExitStack() as at_the_end:
            at_the_end.callback(cluster.stop)
            cluster.start()
            axes = f"MATRIX_AXES=OPTIMIZER=sgd|adamw SEED=1..{cells // 2}"
            to = [f"O={output}", f"CONFIG_RESULTS_DIR={output}/results"]
            on = ["LAUNCHER=slurm", "CONFIG_LAUNCHER_SLURM_PARTITION=closed", "DETACH=y", "DEVICE=cpu"]
            print(f"{cells} cells: {'CPU':>20} {'wall':>7} {'MB':>5}  submissions  other questions")
            measured(cluster, "plan and submit", ["test_matrix", axes, *on, *to])
            measured(cluster, "make status", ["status", *to])
            measured(cluster, "make continue DETACH=y", ["continue", "DETACH=y", *to])
            measured(
                cluster, f"make continue for {WATCHED} s", ["continue", "DETACH=n", *to], seconds=WATCHED
            )
            files = sum(len(names) for _, _, names in os.walk(f"{output}/results"))
            print(f"files: {files / cells:.1f} per cell")
    return 0


def measured(cluster: SlurmCluster, label: str, command: list[str], *, seconds: float = 0) -> None:
    """Run a script as make does, and print what it and its children took; it is killed after `seconds`."""
    script, *arguments = command
    cluster.ask("sdiag", "--reset")
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *arguments],
        cwd=ROOT,
        env={**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT / "lib")},
        stdout=subprocess.DEVNULL,
    )
    if seconds:
        time.sleep(seconds)
        process.kill()
    _, status, own = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0 and not seconds:
        raise SystemExit(f"{label}: exit code {process.returncode}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts = {
        name: int(count)
        for name, count in re.findall(r"^\s*(REQUEST_\w+)\s.*count:(\d+)", cluster.ask("sdiag"), flags=re.M)
    }
    asks = sum(counts.get(name, 0) for name in ASKS)
    print(
        f"{label:24} {cpu:7.1f} s {wall:5.1f} s {own.ru_maxrss / 1024:5.0f}  "
        f"{counts.get(SUBMITS, 0):11}  {asks:15}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
