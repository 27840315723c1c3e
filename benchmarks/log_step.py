"""The cost of a step record of ten scalars to the training thread, and what is left of 1,000 after SIGKILL.

kharness, with floats in a mapping and by keyword, and with a loss that is a tensor, beside the bare floor
(orjson.dumps and os.write of the same record), trackio.log, wandb.log (offline) and SummaryWriter, whichever
are installed; each measurement is a process of its own. Run by `make bench ONLY=log_step`.

Columns: the median call flat out and its ratio to kharness; the median call between steps of 3.5 ms of
matrix products, which leave nothing in the caches, its ratio to the bare floor in the same process, in
turns (the floor takes keywords or calls `item()` where ours does), and its share of such a step; the median
step with logging against the one without; records that can be read after 1,000 calls, about one a
millisecond, and a SIGKILL behind the last.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALLS = 5000
KILLED_AFTER = 1000
STEPS = 200
REPEATS = 3
STEP_SECONDS = 0.0035

SCALARS = {
    "train_loss": 0.4321987,
    "lr": 0.0009876,
    "grad_norm": 1.2345678,
    "samples_per_sec": 18285.714,
    "sec_per_step": 0.0035001,
    "gpu_mem_allocated": 1.2500123,
    "gpu_mem_reserved": 2.5000456,
    "sparsity": 0.5000001,
    "weight_norm": 12.3456789,
    "epoch_progress": 0.3333333,
}

Log = Callable[..., None]


@dataclass(frozen=True)
class Contestant:
    """One way to log: the package it needs, how to begin in a folder, and how to count what is in it."""

    package: str
    begin: Callable[[Path], Log]
    count: Callable[[Path], int]


def main() -> None:
    """Measure every contestant that is installed and print the table."""
    columns = ("us a call", "ratio", "us in a step", "of bare", "share", "step time", "readable")
    print(f"{'ten scalars':<20}" + "".join(f"{column:>13}" for column in columns))
    ours = 0.0
    for name, contestant in CONTESTANTS.items():
        if importlib.util.find_spec(contestant.package) is None:
            print(f"{name:<20}{'not installed':>13}")
            continue
        flat = median_of(name, "flat")["call"]
        stepped = median_of(name, "step")
        ours = ours or flat
        with tempfile.TemporaryDirectory() as folder:
            in_a_process(name, "kill", Path(folder))
            time.sleep(3)  # what helpers of the killed process still write counts for it
            readable = contestant.count(Path(folder))
        cells = (
            f"{flat * 1e6:.1f}",
            f"{flat / ours:.1f}",
            f"{stepped['call'] * 1e6:.1f}",
            f"{stepped['of bare']:.2f}",
            f"{100 * stepped['call'] / STEP_SECONDS:.2f} %",
            f"{100 * (stepped['logged'] / stepped['bare'] - 1):+.1f} %",
            str(readable),
        )
        print(f"{name:<20}" + "".join(f"{cell:>13}" for cell in cells), flush=True)


def median_of(name: str, mode: str) -> dict[str, float]:
    """The median of each figure over REPEATS processes."""
    results = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            in_a_process(name, mode, Path(folder))
            results.append(json.loads((Path(folder) / "figures.json").read_text()))
    return {key: statistics.median(result[key] for result in results) for key in results[0]}


def in_a_process(name: str, mode: str, folder: Path) -> None:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TRACKIO_DIR": str(folder / "trackio"),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
    }
    command = [sys.executable, __file__, name, mode, str(folder)]
    with (folder / "output.log").open("wb") as log:
        code = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False).returncode
    if code != (-signal.SIGKILL if mode == "kill" else 0):
        sys.exit(f"{name}, {mode}: exit {code}\n{(folder / 'output.log').read_text()[-2000:]}")


def measure(name: str, mode: str, folder: Path) -> None:
    """In the child: call, time, and write figures.json, or be killed."""
    bare = [timed(work)[0] for _ in range(STEPS)] if mode == "step" else []
    log = CONTESTANTS[name].begin(folder)
    figures: dict[str, float] = {}
    if mode == "kill":
        for step in range(1, KILLED_AFTER + 1):
            log(step, SCALARS)
            if step < KILLED_AFTER:
                time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "flat":
        calls = [timed(lambda step=step: log(step, SCALARS))[0] for step in range(1, CALLS + 1)]  # type: ignore[misc]
        figures["call"] = statistics.median(calls)
    else:
        calls, logged, floors = [], [], []
        (folder / "floor").mkdir()
        # nobody can write a tensor's number without `item()`, or take keywords without a dictionary of them
        floor = FLOORS.get(name, bare_begin)(folder / "floor")
        for step in range(1, STEPS + 1):
            seconds, _ = timed(work)
            call, _ = timed(lambda step=step: log(step, SCALARS))  # type: ignore[misc]
            calls.append(call)
            logged.append(seconds + call)
            work()
            floors.append(timed(lambda step=step: floor(step, SCALARS))[0])  # type: ignore[misc]
        figures["call"] = statistics.median(calls)
        figures["of bare"] = figures["call"] / statistics.median(floors)
        figures["bare"], figures["logged"] = statistics.median(bare), statistics.median(logged)
    (folder / "figures.json").write_text(json.dumps(figures))
    sys.stdout.flush()
    os._exit(0)  # finishing a tracker is not what is measured


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def work() -> None:
    """About STEP_SECONDS of one core, outside the interpreter lock and over 3 MB, as a training step is."""
    import numpy as np

    global _matrices, _rounds
    if _matrices is None:
        _matrices = np.random.default_rng(0).random((8, 320, 320), dtype=np.float32)
        once = statistics.median(timed(lambda: _matrices[0] @ _matrices[1])[0] for _ in range(200))
        _rounds = max(1, round(STEP_SECONDS / once))
    for number in range(_rounds):
        _matrices[number % 8] @ _matrices[(number + 3) % 8]


_matrices: Any = None
_rounds = 0


def kharness_begin(folder: Path) -> Log:
    from monitoring import Run

    run = Run(folder / "run", name="bench", project="bench", config={})
    return run.log_step


def keywords_begin(folder: Path) -> Log:
    log = kharness_begin(folder)
    return lambda step, scalars: log(step, **scalars)


def tensor_begin(folder: Path) -> Log:
    import torch

    log = kharness_begin(folder)
    loss = torch.tensor(SCALARS["train_loss"], requires_grad=True)
    return lambda step, scalars: log(step, {**scalars, "train_loss": loss})


def bare_begin(folder: Path) -> Log:
    import orjson

    fd = os.open(folder / "records.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def log(step: int, scalars: Mapping[str, float]) -> None:
        about = {"event": "step", "time": time.time(), "seq": step, "attempt": 1, "global_step": step}
        record = {**about, "cpu_mem_rss_mb": 123.456, "nan_inf_detected": False, **scalars}
        os.write(fd, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY))

    return log


def bare_keywords_begin(folder: Path) -> Log:
    log = bare_begin(folder)

    def log_keywords(step: int, **scalars: float) -> None:
        log(step, scalars)

    return lambda step, scalars: log_keywords(step, **scalars)


def bare_tensor_begin(folder: Path) -> Log:
    import torch

    log = bare_begin(folder)
    loss = torch.tensor(SCALARS["train_loss"], requires_grad=True)
    return lambda step, scalars: log(step, {**scalars, "train_loss": loss.item()})


def bare_count(folder: Path) -> int:
    return (folder / "records.jsonl").read_bytes().count(b"\n")


def kharness_count(folder: Path) -> int:
    from monitoring import read_records

    return sum(record["event"] == "step" for record, _ in read_records(folder / "run" / "metrics.jsonl"))


def trackio_begin(folder: Path) -> Log:
    import trackio

    trackio.init(project="bench", name="bench", embed=False)
    return lambda step, scalars: trackio.log(dict(scalars), step=step)


def trackio_count(folder: Path) -> int:
    import sqlite3

    found = 0
    for database in (folder / "trackio").glob("bench*.db"):  # none if it was killed before its first delivery
        connection = sqlite3.connect(database)
        found += int(connection.execute("SELECT COUNT(DISTINCT step) FROM metrics").fetchone()[0])
        connection.close()
    return found


def wandb_begin(folder: Path) -> Log:
    import wandb

    run = wandb.init(project="bench", name="bench", mode="offline", dir=folder)
    return lambda step, scalars: run.log(dict(scalars), step=step)


def wandb_count(folder: Path) -> int:
    from wandb.proto import wandb_internal_pb2

    from monitoring.trackers._wandb_log import read_log

    [path] = folder.glob("wandb/offline-run-*/run-*.wandb")
    records = (wandb_internal_pb2.Record.FromString(stored.data) for stored in read_log(path))
    return sum(record.HasField("history") for record in records)


def tensorboard_begin(folder: Path) -> Log:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder / "tensorboard")

    def log(step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            writer.add_scalar(name, value, step)

    return log


def tensorboard_count(folder: Path) -> int:
    """Steps of which all ten scalars are there."""
    from collections import Counter

    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: Counter[int] = Counter()
    for path in (folder / "tensorboard").iterdir():
        for event in EventFileLoader(str(path)).Load():
            found[event.step] += len(event.summary.value)
    return sum(count == len(SCALARS) for count in found.values())


KEYWORDS, WITH_TENSOR = "kharness, keywords", "kharness, a tensor"
FLOORS = {KEYWORDS: bare_keywords_begin, WITH_TENSOR: bare_tensor_begin}
CONTESTANTS = {
    "kharness": Contestant("monitoring", kharness_begin, kharness_count),
    KEYWORDS: Contestant("monitoring", keywords_begin, kharness_count),
    WITH_TENSOR: Contestant("torch", tensor_begin, kharness_count),
    "orjson, os.write": Contestant("orjson", bare_begin, bare_count),
    "the same, item()": Contestant("torch", bare_tensor_begin, bare_count),
    "trackio": Contestant("trackio", trackio_begin, trackio_count),
    "wandb offline": Contestant("wandb", wandb_begin, wandb_count),
    "SummaryWriter": Contestant("tensorboard", tensorboard_begin, tensorboard_count),
}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        main()
