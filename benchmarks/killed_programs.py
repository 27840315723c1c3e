"""SIGKILL at random moments of a matrix of programs, continued until it is complete.

python benchmarks/killed_programs.py [KILLS] [SEED]

Four programs of 300 steps, two at once; each keeps its step in its run directory and goes on from it. KILLS
(20) times the runner, a bridge, a program or an agent is killed after 0 to 4 seconds; where the runner was,
`kharness continue` follows. At the end what each program has printed is compared with the step records of its
journal: the same steps with the same losses in the same order, over all attempts, and each step counts once.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from monitoring.journal.lineage import counting
from monitoring.journal.records import read_records

KILLS, STEPS = 20, 300

TRAINS = """
import pathlib, sys, time
kept = pathlib.Path(sys.argv[2], "step")
first = int(kept.read_text()) + 1 if kept.exists() else 1
for step in range(first, int(sys.argv[3]) + 1):
    time.sleep(0.05)
    print(f"iter {step}: loss {1 / step / float(sys.argv[1]):.6f}, time 1.00ms", flush=True)
    if step % 10 == 0:
        new = kept.with_name("new")
        new.write_text(str(step))
        new.replace(kept)
"""
# What the processes are, by a word of their commands; agents are forked from one that starts them.
PARTS = {"agent": "monitoring.agent.starter", "bridge": "monitoring.bridge", "program": "trains.py"}
LINE = re.compile(r"^iter (\d+): loss (\S+),", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Print what was killed and what was found; 1 if a value is missing or there twice."""
    kills = int(arguments[0]) if arguments else KILLS
    seed = int(arguments[1]) if len(arguments) > 1 else 0
    moments = random.Random(seed)
    killed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trains.py").write_text(TRAINS)
        program = [sys.executable, "trains.py", "{x}", "{run_dir}", str(STEPS)]
        start = ["matrix", "-a", "x=1..4", "--jobs", "2", "--retries", "0", "--", *program]
        runner = kharness(folder, *start)
        while not (
            Path(folder) / "results" / "latest"
        ).exists():  # a plan that was cut off is none to continue
            time.sleep(0.01)
        while sum(killed.values()) < kills:
            time.sleep(4 * moments.random())
            if runner.poll() is not None:
                if complete(folder):
                    break
                runner = kharness(folder, "continue")
                continue
            name, pid = chosen(runner.pid, folder, moments)
            os.kill(pid, signal.SIGKILL)
            killed[name] += 1
            if name == "runner":
                runner.wait()
                runner = kharness(folder, "continue")
        while not complete(folder):
            runner.wait()
            runner = kharness(folder, "continue")
        runner.wait()
        print(f"seed {seed}: killed {dict(killed)}")
        exact = [is_exact(run) for run in sorted((Path(folder) / "results" / "latest").glob("x-*"))]
        return int(not all(exact))


def kharness(folder: str, *words: str) -> subprocess.Popen[bytes]:
    """Start the command."""
    return subprocess.Popen(
        [sys.executable, "-m", "kharness", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def chosen(runner: int, folder: str, moments: random.Random) -> tuple[str, int]:
    """One of the processes that could be killed now, and what it is."""
    found = {"runner": [runner]}
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        if process.info["cwd"] == os.path.realpath(folder):
            for name, word in PARTS.items():
                if word in words:
                    found.setdefault(name, []).append(process.pid)
                    break
    name = moments.choice(sorted(found))
    return name, moments.choice(found[name])


def complete(folder: str) -> bool:
    """Whether every run has ended well."""
    said = subprocess.run(
        [sys.executable, "-m", "kharness", "status"], cwd=folder, capture_output=True, text=True, check=False
    )
    return "4 runs: 4 complete" in said.stdout


def is_exact(run: Path) -> bool:
    """Whether a journal has what was printed, each line once, and counts each step once."""
    printed = [(int(step), float(loss)) for step, loss in LINE.findall((run / "output.log").read_text())]
    journal = [record for record, _ in read_records(run / "metrics.jsonl")]
    steps = [record for record in journal if record["event"] == "step"]
    recorded = [(record["global_step"], record["train_loss"]) for record in steps]
    count = [record["global_step"] for record in counting(journal) if record["event"] == "step"]
    exact = recorded == printed and count == list(range(1, STEPS + 1))
    attempts = max(int(str(record["attempt"])) for record in journal)
    print(
        f"  {run.name}: {attempts} attempts, {len(printed)} printed, {len(recorded)} recorded, "
        f"{len(count)} count: {'exact' if exact else 'NOT EXACT'}"
    )
    return exact


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
