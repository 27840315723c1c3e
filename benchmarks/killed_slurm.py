"""SIGKILL at random moments to the runner of a matrix on Slurm, continued there and on this machine in turn.

python benchmarks/killed_slurm.py [KILLS] [SEED]

Eight cells on the tests' cluster, of real daemons on loopback; the model only pretends to train, and resumes.
KILLS (20) times the runner is killed: after 0 to 3 seconds, or by its own sbatch before or after that has
handed over the jobs, so that the answer is lost. Before half of these all jobs are cancelled, so that there
is something to submit; each third runner has LAUNCHER=local, which leaves alone what Slurm still runs. At the
end no two jobs of a cell have run at once, each step counts once, and the summary is that of a matrix that
was never disturbed, on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from monitoring.journal.lineage import counting  # noqa: E402
from monitoring.journal.records import read_records  # noqa: E402
from tests.kharness.matrix.conftest import SLOW, Checkout  # noqa: E402
from tests.slurm_cluster import SlurmCluster, missing  # noqa: E402

KILLS, STEPS, SEEDS = 20, 1500, 4

# An sbatch whose caller is killed before or after the real one, once, where a file asks for it.
SHIM = """#!/bin/sh
case "$*" in *--test-only*) exec {sbatch} "$@";; esac
if mv {flag}.before {flag}.done 2>/dev/null; then kill -9 $PPID; exit 1; fi
if mv {flag}.after {flag}.done 2>/dev/null; then {sbatch} "$@" >/dev/null; kill -9 $PPID; exit 1; fi
exec {sbatch} "$@"
"""
WAYS = ("before", "after", "later", "later", "later", "later")
# What an undisturbed run has in common with a disturbed one; times differ.
RESULTS = ("test_accuracy", "val_accuracy", "val_loss", "best_val_loss", "train_loss")


def main(arguments: list[str]) -> int:
    """Print what was killed and what was found; 1 where something is missing, there twice or different."""
    kills = int(arguments[0]) if arguments else KILLS
    moments = random.Random(int(arguments[1]) if len(arguments) > 1 else 0)
    if reason := missing():
        print(f"nothing was killed: no Slurm here: {reason}")
        return 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        contextlib.ExitStack() as at_the_end,
    ):
        cluster = SlurmCluster(Path(folder) / "slurm", nodes=2)
        at_the_end.callback(cluster.stop)
        cluster.start()
        disturbed = Matrix(Path(folder) / "disturbed", cluster)
        killed = disturbed.run(kills, moments)
        print(f"killed {kills} times: {dict(killed)}")
        undisturbed = Matrix(Path(folder) / "undisturbed", cluster)
        undisturbed.start("test_matrix", "LAUNCHER=local", "JOBS=4", *undisturbed.asked).wait()
        twice = [found for run in disturbed.runs() if (found := run_twice(run))]
        uncounted = [run.name for run in disturbed.runs() if counted_steps(run) != list(range(1, STEPS + 1))]
        same = disturbed.summary() == undisturbed.summary()
        jobs = [len(starts_of(run)) for run in disturbed.runs()]
        print(f"jobs of each cell: {jobs}; two at once: {twice or 'none'}")
        print(f"steps missing or doubled: {uncounted or 'none'}; summary as undisturbed: {same}")
        if not same:
            print(json.dumps([disturbed.summary(), undisturbed.summary()])[:3000])
        return int(bool(twice or uncounted) or not same)


class Matrix:
    """One in a small checkout of its own."""

    def __init__(self, root: Path, cluster: SlurmCluster) -> None:
        self._cluster = cluster
        self._checkout = Checkout(root, ROOT, None)  # type: ignore[arg-type]
        self._flag = root / "kill"
        shim = root / "bin" / "sbatch"
        shim.parent.mkdir()
        shim.write_text(SHIM.format(sbatch="/usr/bin/sbatch", flag=self._flag))
        shim.chmod(0o755)
        path = f"{shim.parent}:{cluster.environment['PATH']}"
        self._environment = {
            **os.environ,
            **cluster.environment,
            "PATH": path,
            "PYTHONPATH": str(ROOT / "lib"),
        }
        axes = f"CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam SEED=1..{SEEDS}"
        self.asked = (axes, f"CONFIG_NUM_STEPS={STEPS}", SLOW)

    def run(self, kills: int, moments: random.Random) -> Counter[str]:
        """Begin it, kill its runner so many times, and continue it to the end."""
        killed: Counter[str] = Counter()
        while sum(killed.values()) < kills:
            way = moments.choice(WAYS)
            where = "local" if sum(killed.values()) % 3 == 2 else "slurm"
            if moments.random() < 0.5:
                self._cluster.ask("scancel", "--quiet", "-u", "root")
            patience = 3 * moments.random()
            if way != "later" and where == "slurm":
                patience = 10
                self._flag.with_suffix(f".{way}").touch()
            planned = self._flag.with_name("results") / "latest"
            runner = self._next(where)
            while not planned.exists() and runner.poll() is None:  # a plan that was cut off is none
                time.sleep(0.01)
            with contextlib.suppress(subprocess.TimeoutExpired):
                runner.wait(timeout=patience)
            for left in self._flag.parent.glob("kill.*"):
                left.unlink()
            if runner.poll() is None:
                runner.kill()
                runner.wait()
                way = "later"
            killed[f"{where}, {way}" if runner.returncode == -9 else "had ended"] += 1
        deadline = time.monotonic() + 600
        while self._next("slurm").wait() != 0:
            if time.monotonic() > deadline:
                raise SystemExit("it does not come to an end")
        return killed

    def _next(self, where: str) -> subprocess.Popen[bytes]:
        if self._is_unplanned:
            return self.start("test_matrix", f"LAUNCHER={where}", *self.asked)
        return self.start("continue", f"LAUNCHER={where}", "RETRIES=100")

    @property
    def _is_unplanned(self) -> bool:
        return not (self._checkout.root / "results" / "latest").exists()

    def start(self, script: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._checkout.command(script, *arguments),
            cwd=self._checkout.root,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self._checkout.latest.glob("*/status.json"))

    def summary(self) -> list[dict[str, Any]]:
        content = json.loads((self._checkout.latest / "summary.json").read_text())
        return [
            {"name": run["name"], "status": run["status"], **{name: run["metrics"][name] for name in RESULTS}}
            for run in content["runs"]
        ]


def starts_of(run: Path) -> list[dict[str, Any]]:
    """The lines of its job file that say that a job began, each with the line of its end if it has one."""
    lines = (run / "job.jsonl").read_text().splitlines() if (run / "job.jsonl").exists() else []
    found: list[dict[str, Any]] = []
    for event in map(json.loads, lines):
        if event["event"] == "start":
            found.append({**event, "end": None})
        elif event["event"] == "end" and found and found[-1]["submission"] == event["submission"]:
            found[-1]["end"] = event["time"]
    return found


def run_twice(run: Path) -> str:
    """Name of a run of which one job had begun before the one before it had ended."""
    starts = starts_of(run)
    pairs = pairwise(starts)
    return run.name if any(one["end"] is None or one["end"] > two["time"] for one, two in pairs) else ""


def counted_steps(run: Path) -> list[int]:
    """The steps that count."""
    journal = [record for record, _ in read_records(run / "metrics.jsonl")]
    return [int(str(record["global_step"])) for record in counting(journal) if record["event"] == "step"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
