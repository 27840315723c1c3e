"""A thousand short cells over a hundred nodes of a Slurm on this machine, with the runner killed twice.

python benchmarks/many_nodes_slurm.py [CELLS] [NODES] [CELLS_PER_JOB]

The cluster is that of the tests: a hundred real slurmd on loopback, each in namespaces of its own. A cell is
a shell command that prints two steps. The runner gets SIGKILL when a third and when two thirds of the cells
have ended, and `kharness continue` goes on. At the end each cell has run once, and all are complete.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.killed_slurm import starts_of  # noqa: E402
from kharness.runs.files import JOB_JSONL, STATUS_JSON  # noqa: E402
from kharness.runs.status import read_status  # noqa: E402
from tests.slurm_cluster import SlurmCluster, missing  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

CELL = 'for step in 1 2; do echo "iter $step: loss 0.$1, time 1.00ms"; done'
LOOK_EVERY = 1.0
"""Seconds between two looks at how many have ended."""


def main(arguments: list[str]) -> int:
    """Print what was seen; 1 where a cell is missing or has run twice."""
    cells, nodes, packed = (*map(int, arguments), *(1000, 100, 1)[len(arguments) :])
    if reason := missing():
        print(f"{cells} cells do not run: no Slurm here: {reason}")
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at, contextlib.ExitStack() as at_the_end:
        # a hundred daemons on few cores answer late
        cluster = SlurmCluster(Path(at) / "slurm", nodes=nodes, cpus=1, node_timeout=600)
        at_the_end.callback(cluster.stop)
        begun = time.monotonic()
        cluster.start()
        print(f"{nodes} nodes are up after {time.monotonic() - begun:.0f} s", flush=True)
        folder = Path(at) / "matrix"
        folder.mkdir()
        words = ["matrix", "-a", f"x={','.join(map(str, range(1, cells + 1)))}", "--launcher", "slurm"]
        words += ["--launcher-option", f"cells_per_job={packed}", "--", "sh", "-c", CELL, "sh", "{x}"]
        for part in (1, 2, 0):
            runner = start(folder, cluster, words)
            if part:
                wait_until(partial(has_ended, folder, part * cells // 3), "the cells", every=LOOK_EVERY)
                runner.kill()
            _, _, own = os.wait4(runner.pid, 0)
            told = f"runner {'killed' if part else 'ended'} with {ended(folder)} of {cells} cells over"
            cpu = own.ru_utime + own.ru_stime
            print(f"{told}: {cpu:.1f} s of CPU, {own.ru_maxrss / 1024:.0f} MB", flush=True)
            words = ["continue"]
        print(f"{time.monotonic() - begun:.0f} s in all")
        return judged(folder, cells)


def start(folder: Path, cluster: SlurmCluster, words: list[str]) -> subprocess.Popen[bytes]:
    with (folder / "runner.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "kharness", *words],
            cwd=folder,
            env={**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT / "lib")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(f"results/latest/*/{STATUS_JSON}"))


def ended(folder: Path) -> int:
    """Cells whose job has noted an end."""
    return sum('"end"' in path.read_text() for path in folder.glob(f"results/latest/*/{JOB_JSONL}"))


def has_ended(folder: Path, wanted: int) -> bool:
    return ended(folder) >= wanted


def judged(folder: Path, cells: int) -> int:
    """Print how the cells have ended, and how often each has run; 1 where it is not once each."""
    found = runs(folder)
    states = Counter(read_status(run).status for run in found)
    times = Counter(len(starts_of(run)) for run in found)
    nodes = {start["node"] for run in found for start in starts_of(run)}
    print(f"{dict(states)} on {len(nodes)} nodes; jobs per cell: {dict(times)}")
    good = states == {"complete": cells} and times == {1: cells}
    if not good:
        print((folder / "runner.log").read_text()[-3000:])
        odd = [run for run in found if read_status(run).status != "complete"]
        print("".join((run / "output.log").read_text()[-500:] for run in odd[:3]))
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
