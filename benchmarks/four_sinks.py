"""How long after its end a run is in four sinks: CSV, Trackio, W&B (offline) and TensorBoard.

python benchmarks/four_sinks.py [RECORDS] [ROUNDS]

A journal of RECORDS step records of ten scalars (1,000,000) is delivered by one agent that begins at its
end: with a process for each follower that is far behind, and with all followers in one interpreter. Beside
that the same records go through each tracker's own client, one after the other, from its `init` to its
`finish`; of those a tenth of the records is logged, and the seconds are for ten times as many. In turns,
ROUNDS times (3); medians. At the end every sink is counted.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from log_step import CONTESTANTS, SCALARS

CLIENTS = ("trackio", "wandb offline", "SummaryWriter")
TRACKERS: dict[str, dict[str, object]] = {"trackio": {}, "wandb": {"offline": True}, "tensorboard": {}}

# The agent; the argument is BEHIND_BYTES.
AGENT = """
import sys
from monitoring.agent import follow as agent
from monitoring.agent import delivery
delivery.BEHIND_BYTES = int(sys.argv[1])
agent.leave(agent.main(sys.argv[2:]))
"""
WAYS = {"a process each": 16 * 2**20, "one interpreter": 2**62}

# A client, from its beginning to its end; the arguments are its name, the records and the folder.
CLIENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from four_sinks import log_all
log_all(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
"""


def main(argv: list[str]) -> int:
    """Print the table; 1 if a sink does not hold every record."""
    records, rounds = (int(argv[0]) if argv else 1_000_000), (int(argv[1]) if len(argv) > 1 else 3)
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    missing = 0
    for _ in range(rounds):
        for way, behind in WAYS.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
                write_journal(Path(name) / "run", records)
                command = [sys.executable, "-c", AGENT, str(behind), str(Path(name) / "run")]
                seconds[way].append(timed(command, Path(name)))
                missing += sum(records - held for held in counts(Path(name)).values())
        for client in CLIENTS:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
                arguments = [str(Path(__file__).parent), client, str(records // 10), name]
                wall, cpu = timed([sys.executable, "-c", CLIENT, *arguments], Path(name))
                seconds[client].append((10 * wall, 10 * cpu))
    base = statistics.median(wall for wall, _ in seconds["a process each"])
    print(f"{records} records of ten scalars, {os.cpu_count()} cores; medians of {rounds}")
    print(f"{'':<24}{'s':>8}{'CPU s':>8}{'ratio':>8}")
    for way, taken in seconds.items():
        wall, cpu = (statistics.median(values) for values in zip(*taken, strict=True))
        sinks = "four sinks, " if way in WAYS else ""
        print(f"{sinks + way:<24}{wall:>8.1f}{cpu:>8.1f}{wall / base:>8.1f}")
    print(f"records that a sink lacks: {missing}")
    return 1 if missing else 0


def write_journal(directory: Path, records: int) -> None:
    """What the training leaves when its agent has not begun."""
    from monitoring import Run

    with Run(directory, name="bench", project="bench", config={}, trackers=TRACKERS, agent=False) as run:
        for step in range(1, records + 1):
            run.log_step(step, **SCALARS)


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a process and its children."""
    environment = {
        **os.environ,
        "TRACKIO_DIR": str(folder / "trackio"),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
    }
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def counts(folder: Path) -> dict[str, int]:
    """The step records that each sink holds."""
    found = {}
    with (folder / "run" / "metrics.csv").open(newline="") as file:
        found["csv"] = sum(row["event"] == "step" for row in csv.DictReader(file))
    for name in TRACKERS:
        code = (
            "import json, sys; from pathlib import Path; from monitoring.follower import *\n"
            f"module, run = follower_module({name!r}), RunInfo.read(Path(sys.argv[1]))\n"
            "seqs = [p.seq for p in module.read_back(run, module.Options()) if p.metric == 'train_loss']\n"
            "print(json.dumps(len(set(seqs)) if len(set(seqs)) == len(seqs) else -1))"
        )
        environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio")}
        command = [sys.executable, "-c", code, str(folder / "run")]
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        found[name] = json.loads(said)
    return found


def log_all(client: str, records: int, folder: Path) -> None:
    """In the child: log, and finish."""
    log = CONTESTANTS[client].begin(folder)
    for step in range(1, records + 1):
        log(step, SCALARS)
    if client == "trackio":
        import trackio

        trackio.finish()
    elif client == "wandb offline":
        import wandb

        wandb.finish()
    # SummaryWriter closes at exit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
