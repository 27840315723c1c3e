"""How long after its end a run is in four sinks: CSV, Trackio, W&B (offline) and TensorBoard.

python benchmarks/four_sinks.py [RECORDS] [ROUNDS]

A journal of RECORDS step records of ten scalars (1,000,000) is delivered by one agent that begins at its
end: with a process for each follower that is far behind, ROUNDS times (3), and once with all followers in one
interpreter. Beside that the same records go through each tracker's own client, one after the other, from its
`init` to its `finish`; of those a tenth of the records is logged, once, and the seconds are for ten times as
many. Each line is printed when its medians are known. Every time, the records in each sink are counted.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.log_step import CONTESTANTS, SCALARS
else:  # a script's folder is on its path
    from log_step import CONTESTANTS, SCALARS

from monitoring.trackers._wandb_log import read_log
from monitoring.trackers._wandb_records import is_row

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
    print(f"{records} records of ten scalars, {os.cpu_count()} cores")
    print(f"{'':<28}{'rounds':>8}{'s':>8}{'CPU s':>8}{'ratio':>8}{'missing':>10}")
    lacks, base = 0, 0.0
    for way, behind in WAYS.items():
        taken, missing = [], 0
        for _ in range(rounds if way == next(iter(WAYS)) else 1):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
                write_journal(Path(name) / "run", records)
                command = [sys.executable, "-c", AGENT, str(behind), str(Path(name) / "run")]
                taken.append(timed(command, Path(name)))
                missing += sum(records - held for held in counts(Path(name)).values())
        base = base or statistics.median(wall for wall, _ in taken)
        show(f"four sinks, {way}", taken, base, str(missing))
        lacks += missing
    for client in CLIENTS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            arguments = [str(Path(__file__).parent), client, str(records // 10), name]
            wall, cpu = timed([sys.executable, "-c", CLIENT, *arguments], Path(name))
            show(client, [(10 * wall, 10 * cpu)], base, "")
    return 1 if lacks else 0


def show(what: str, taken: list[tuple[float, float]], base: float, missing: str) -> None:
    """Print the medians of one way."""
    wall, cpu = (statistics.median(values) for values in zip(*taken, strict=True))
    print(f"{what:<28}{len(taken):>8}{wall:>8.1f}{cpu:>8.1f}{wall / base:>8.1f}{missing:>10}", flush=True)


def write_journal(directory: Path, records: int) -> None:
    """Write what a training leaves whose agent has not begun."""
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
    """The step records that each sink holds, without those that it holds twice.

    Looks for each record's `seq` in the files; their contents are the tests' matter.
    """
    run = folder / "run"
    found = {"csv": re.findall(rb"^(\d+),1,step,", (run / "metrics.csv").read_bytes(), re.MULTILINE)}
    [events] = (run / "tensorboard").glob("events.out.tfevents.*")
    found["tensorboard"] = re.findall(rb"monitoring:(\d+):step", events.read_bytes())
    [log] = (run / "wandb").glob("offline-run-*/run-*.wandb")
    rows = [it.data for it in read_log(log) if is_row(it.data) and b'"step"' in it.data]
    found["wandb"] = [
        step for row in rows for step in re.findall(rb"\x05_step\x82\x01.(\d+)", row, re.DOTALL)
    ]
    [database] = (folder / "trackio").glob("*.db")
    with contextlib.closing(sqlite3.connect(database)) as rows_of:
        found["trackio"] = [
            row[0] for row in rows_of.execute("SELECT log_id FROM metrics") if "step" in row[0]
        ]
    return {sink: 2 * len(set(seqs)) - len(seqs) for sink, seqs in found.items()}


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
