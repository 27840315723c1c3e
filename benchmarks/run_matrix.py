"""The cost of running a matrix beside the trainings: 1,000 cells that do nothing, and a look at them.

python benchmarks/run_matrix.py [CELLS]

Each cell is a fresh interpreter that writes two records. Counted is what the runner itself takes; then how
long `make status` takes from the outside, and how long `make continue` takes to find that nothing is left.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing, redirect_stdout
from dataclasses import replace
from pathlib import Path

from kharness.config.assignment import Origin
from kharness.config.tree import Tree
from kharness.matrix.launchers import open_launcher
from kharness.matrix.machine.resources import open_resources
from kharness.matrix.planning.plan import load, prepare
from kharness.matrix.running.pending_cells import remaining
from kharness.matrix.running.progress import MatrixProgress
from kharness.matrix.running.protocols import Queue
from kharness.matrix.running.runner import Limits, Runner
from kharness.matrix.running.signals import Signals
from kharness.runs.lock import RunnerLock

ROOT = Path(__file__).resolve().parent.parent
LOOKS = 5

TRAIN = """\
import json, runpy, sys, time
directory = sys.argv[2]
config = {k: v for k, v in runpy.run_path(directory + "/config.py").items() if k.isupper()}
start = {"event": "start", "time": time.time(), "seq": 1, "attempt": 1, "config": config}
end = {"event": "end", "time": time.time(), "seq": 2, "attempt": 1, "status": "complete"}
open(directory + "/metrics.jsonl", "w").write(json.dumps(start) + "\\n" + json.dumps(end) + "\\n")
"""


def main(argv: list[str]) -> int:
    """Print what was measured."""
    cells = int(argv[0]) if argv else 1000
    # In the checkout, so that the file system is the one that matrices are written to.
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-") as name:
        folder = Path(name)
        (folder / "lenet5").mkdir()
        (folder / "lenet5/train.py").write_text(TRAIN)
        tree = Tree.load(ROOT)
        axis = tree.assignments("MATRIX_AXES", f"SEED=1..{cells}", Origin("benchmark", "axes"))
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            plan = prepare(tree, folder, axis)
            launches = [replace(launch, root=folder) for launch in plan.launches]
            own, children, wall = usage(), resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            with (
                Signals() as signals,
                closing(open_launcher("local", {"LAUNCHER_LOCAL_FORK_SERVER": False})) as launcher,
            ):
                progress = MatrixProgress(nowhere, cells)
                resources = open_resources({"MATRIX_JOBS": 2}, progress.say)
                with RunnerLock(plan.directory):
                    outcomes = Runner(
                        Queue(launches), launcher, resources, signals, progress, limits=Limits(retries=1)
                    ).run()
        wall, own = time.perf_counter() - wall, usage() - own
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        inside = spent.ru_utime + spent.ru_stime - children.ru_utime - children.ru_stime
        complete = sum(outcome.status == "complete" for outcome in outcomes.values())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(f"{complete} of {cells} cells complete, 2 at once, in {wall:.1f} s")
        print(f"runner: {own / cells * 1e3:.1f} ms of CPU per cell, {peak:.0f} MB at most")
        print(f"the cells themselves: {inside / cells * 1e3:.1f} ms of CPU each")
        print(f"make status: {min(status_seconds(plan.directory) for _ in range(LOOKS)):.2f} s")
        begun = time.perf_counter()
        left = remaining(load(plan.directory, ROOT).launches)
        print(
            f"make continue, nothing left: {time.perf_counter() - begun:.2f} s to find {len(left.complete)}"
        )
    return 0


def usage() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def status_seconds(directory: Path) -> float:
    """Wall time of the target's script, the start of Python included."""
    begun = time.perf_counter()
    command = [sys.executable, str(ROOT / "scripts/status.py"), f"RUN={directory}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
