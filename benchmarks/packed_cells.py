"""CPU time of a cell in a packed job of Slurm, and of one that the local launcher runs, two at a time.

python benchmarks/packed_cells.py [PAIRS]

Cells are 20 steps of LeNet-5 on the CPU. Each turn runs a matrix of 3 and one of 11 here, and both by the
program of a packed job with two CPUs; the difference of the two sizes is what 8 cells take, here with their
part of the report. The list of the job is written by a real submission on the tests' cluster, whose queue is
closed. At the end losses of both must be equal, bit by bit.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from monitoring.journal.records import read_records  # noqa: E402
from tests.slurm_cluster import SlurmCluster, missing  # noqa: E402

FEW, MANY = 3, 11
CELLS = ("DEVICE=cpu", "NUM_THREADS=1", "CONFIG_MAX_STEPS=20", "CONFIG_REPORT_GRAPHS=n")
PACKED = (
    *("LAUNCHER=slurm", "DETACH=y", "CONFIG_LAUNCHER_SLURM_PARTITION=closed"),
    *(f"CONFIG_MATRIX_CELLS_PER_JOB={MANY}", "CONFIG_LAUNCHER_SLURM_CPUS=2"),
)


def main(arguments: list[str]) -> int:
    """Print CPU seconds of a cell each way; 1 where losses differ."""
    if reason := missing():
        print(f"packed cells are not measured: no Slurm here: {reason}")
        return 0
    equal = True
    with (
        tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-") as output,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at,
        contextlib.ExitStack() as at_the_end,
    ):
        cluster = SlurmCluster(Path(at) / "slurm")
        at_the_end.callback(cluster.stop)
        cluster.start()
        environment = {**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT / "lib")}
        for turn in range(int(arguments[0]) if arguments else 2):
            here: dict[int, float] = {}
            there: dict[int, float] = {}
            for cells in (FEW, MANY):
                folders = [Path(output) / f"{way}{cells}-{turn}" for way in ("here", "there")]
                here[cells] = matrix(folders[0], cells, ["JOBS=2"], environment)
                matrix(folders[1], cells, PACKED, environment)
                (listed,) = folders[1].glob("results/latest/.slurm/*.jsonl")
                job = [sys.executable, "-m", "kharness.matrix.launchers._slurm_packed", str(listed)]
                of_job = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_CPUS_ON_NODE": "2"}
                there[cells] = cpu_seconds(job, {**environment, **of_job})
                equal = (
                    equal and losses(folders[0]) == losses(folders[1]) and len(losses(folders[0])) == cells
                )
            more = MANY - FEW
            print(
                f"CPU seconds of a cell: here {(here[MANY] - here[FEW]) / more:.2f}, "
                f"in a packed job {(there[MANY] - there[FEW]) / more:.2f}",
                flush=True,
            )
    print("losses are equal" if equal else "losses differ")
    return 0 if equal else 1


def matrix(
    output: Path, cells: int, asked: list[str] | tuple[str, ...], environment: Mapping[str, str]
) -> float:
    """Return the CPU seconds of a matrix with as many seeds, written to `output`."""
    output.mkdir()
    words = [f"MATRIX_AXES=SEED=1..{cells}", f"O={output}", f"CONFIG_RESULTS_DIR={output}/results", *CELLS]
    return cpu_seconds([sys.executable, str(ROOT / "scripts/test_matrix.py"), *words, *asked], environment)


def cpu_seconds(command: list[str], environment: Mapping[str, str]) -> float:
    """Run a command, and return the CPU seconds of it and of all that it has waited for."""
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[1]}: exit code {process.returncode}")
    return used.ru_utime + used.ru_stime


def losses(output: Path) -> dict[str, list[object]]:
    """Return the losses of all steps of each cell."""
    journals = sorted(output.glob("results/latest/*/metrics.jsonl"))
    return {
        path.parent.name: [
            record["train_loss"] for record, _ in read_records(path, 0) if record["event"] == "step"
        ]
        for path in journals
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
