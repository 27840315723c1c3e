"""The full report of a matrix of 1,000 cells and a look at it, beside merely parsing its journals.

python benchmarks/report_matrix.py [CELLS [STEPS [DIR]]]

As 100 variants x 10 seeds, and as 200 x 5, whose 19,900 pairs fronts and ranks are judged by; more than 1,000
CELLS as variants x 10 seeds alone. Python's bytecode is cached, as from the second report on. The cells are
synthetic: journals of the default LeNet-5 training's length (1,275 steps, 15 epochs), with numbers made up
by a formula. With DIR they are left there, to look at the report; else in a temporary folder.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil

from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.matrix_json import Plan, planned_content

AXES = {
    "OPTIMIZER": ["sgd", "adam", "adamw", "lion", "muon"],
    "BATCH_SIZE": ["32", "64", "128", "256", "512"],
    "LEARNING_RATE": ["0.05", "0.01", "0.003", "0.001"],
    "SEED": [str(seed) for seed in range(1, 11)],
}
EPOCHS = 15
ROOT = Path(__file__).resolve().parent.parent
SEEDS = (10, 5)
"""Seeds of the two matrices; the second has more batch sizes instead."""
LOOK_EVERY = 0.1
"""Seconds between two looks at the memory of a report and its second process."""
OF_AXES = 1000
"""Cells that each has; with more there is an axis of WEIGHT_DECAY as well."""
MORE_SIZES = ["48", "96", "192", "384", "768"]

STATUS = """
import resource, runpy, sys, time
started = time.perf_counter()
import contextlib, io
sys.argv = [sys.argv[2], "RUN=" + sys.argv[1]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    runpy.run_path(sys.argv[0], run_name="__main__")
print(time.perf_counter() - started, time.process_time())
"""

REPORT = """
import resource, sys, time
from pathlib import Path
started = time.perf_counter()
from kharness.report.report import write_all
from kharness.report.summary import collect
write_all(collect(Path(sys.argv[1])))
used, other = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = time.process_time(), other.ru_utime + other.ru_stime
print(time.perf_counter() - started, *cpu, used.ru_maxrss / 1024)
"""
WARM = """
from kharness.report.report import write_all
from kharness.report.graphs import _paper, _pictures
from kharness.report.judging import statistics
from scipy import optimize, special
from matplotlib import backends, figure
from matplotlib.backends import backend_agg
from PIL import Image, ImageFont
"""
PARSE = """
import sys, time
from pathlib import Path
started = time.perf_counter()
import orjson
for path in Path(sys.argv[1]).glob("*/metrics.jsonl"):
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)
print(time.perf_counter() - started, time.process_time())
"""


def axes_of(seeds: int, cells: int) -> dict[str, list[str]]:
    """Axes of so many cells, with so many seeds a variant."""
    sizes = AXES["BATCH_SIZE"] + (MORE_SIZES if seeds == min(SEEDS) else [])
    decays = [str(decay / 1000) for decay in range(-(-cells // OF_AXES))]
    more = {"WEIGHT_DECAY": decays} if len(decays) > 1 else {}
    return {**AXES, "BATCH_SIZE": sizes, **more, "SEED": [str(seed) for seed in range(1, seeds + 1)]}


def make_matrix(directory: Path, axes_values: dict[str, list[str]], cells: int, steps: int) -> None:
    """A matrix directory as a runner and its trainers leave it; every 97th run was killed half-way."""
    directory.mkdir(parents=True)
    combinations = itertools.islice(itertools.product(*axes_values.values()), cells)
    planned = []
    for number, chosen in enumerate(combinations):
        values = dict(zip(axes_values, chosen, strict=True))
        name = "_".join(f"{symbol.lower().replace('_', '-')}-{value}" for symbol, value in values.items())
        command = f".venv/bin/python lenet5/train.py --run-dir {directory.name}/{name}"
        planned.append({"name": name, "values": values, "model": "lenet5", "command": command})
        write_run(directory / name, values, steps, killed=number % 97 == 96)
    axes = [Axis(symbol, values) for symbol, values in axes_values.items()]
    plan = {
        **planned_content(Plan(directory, axes, cells=(), launches=(), created=1795262002.0)),
        "model": "lenet5",
        "cells": planned,
        "git": {"revision": "0" * 40, "dirty": False, "diff_sha256": None},
        "versions": {"python": "3.11.9", "torch": "2.13.0"},
    }
    (directory / "matrix.json").write_text(json.dumps(plan))


def write_run(run: Path, values: dict[str, str], steps: int, *, killed: bool) -> None:
    run.mkdir()
    records = list(journal(values, steps))
    records = records[: len(records) // 2] if killed else records
    lines = [
        orjson.dumps({"seq": seq, "attempt": 1, "time": 1795262002.0 + seq / 100, **record})
        for seq, record in enumerate(records, start=1)
    ]
    (run / "metrics.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    attempt = {
        "started": 1795262002.0,
        "ended": 1795262012.5,
        "pid": 7,
        "exit_code": None if killed else 0,
        "signal": 9 if killed else None,
        "cause": "signal" if killed else None,
        "reason": "signal 9 (SIGKILL)" if killed else None,
    }
    status = {"status": "killed" if killed else "complete", "attempts": [attempt]}
    (run / "status.json").write_text(json.dumps(status))
    (run / "output.log").write_text("".join(f"epoch {n}/{EPOCHS}\n" for n in range(EPOCHS)))


def journal(values: dict[str, str], steps: int) -> Iterator[dict[str, Any]]:
    """The loss falls as 1 / step toward a floor that depends on the values, and a little on the seed."""
    chance = random.Random("/".join(values.values()))
    floor = 0.02 + 0.01 * AXES["OPTIMIZER"].index(values["OPTIMIZER"]) + 0.00002 * int(values["BATCH_SIZE"])
    floor += 0.01 * abs(math.log10(float(values["LEARNING_RATE"])) + 2.5) + chance.gauss(0, 0.004)
    yield {
        "event": "start",
        "num_steps": steps,
        "num_epochs": EPOCHS,
        "batch_size": int(values["BATCH_SIZE"]),
        "seed": int(values["SEED"]),
        "dataset": {"name": "mnist-subset", "train": 5400},
        "config": {**values, "MODEL": "lenet5"},
    }
    every = max(1, steps // EPOCHS)
    accuracy = 0.0
    for step in range(1, steps + 1):
        loss = abs(floor) + 2.2 / (1 + step / 20) * chance.uniform(0.8, 1.2)
        yield {
            "event": "step",
            "global_step": step,
            "train_loss": loss,
            "lr": 0.05 * (1 - step / (steps + 1)),
            "grad_norm": loss * 2,
            "samples_per_sec": 9000.0,
            "sec_per_step": abs(chance.gauss(0.007, 0.0005)),
            "gpu_mem_allocated": None,
            "gpu_mem_reserved": None,
            "cpu_mem_rss_mb": 400.0 + int(values["BATCH_SIZE"]) / 8,
            "nan_inf_detected": False,
        }
        if step % every == 0:
            accuracy = max(0.0, 1 - floor - 0.9 / (1 + step / 20) - chance.uniform(0, 0.002))
            validation = {"val_loss": 1.2 - accuracy, "val_accuracy": accuracy}
            yield {"event": "eval", "global_step": step, "split": "val", **validation}
            epoch = {"epoch": step // every, "train_loss": loss, "epoch_seconds": 0.6}
            yield {"event": "epoch", "global_step": step, **epoch, **validation}
    yield {
        "event": "end",
        "status": "complete",
        "steps_done": steps,
        "training_seconds": steps * 0.007 + chance.uniform(0, 0.3),
        "test_accuracy": accuracy - 0.002 + chance.gauss(0, 0.001),
        "test_loss": 1.2 - accuracy,
    }


def measured(program: str, directory: Path, together: list[float] | None = None) -> list[float]:
    """The numbers that a fresh process prints; `together` gets what it and its children had in memory."""
    command = [sys.executable, "-c", program, str(directory), str(ROOT / "scripts/status.py")]
    cached = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cached) as running:
        while running.poll() is None:
            if together is not None:
                together.append(memory_of_all(running.pid))
            time.sleep(LOOK_EVERY)
        printed = running.stdout.read() if running.stdout else ""
    assert running.returncode == 0, program
    return [float(word) for word in printed.split()]


def memory_of_all(pid: int) -> float:
    """MB of a process and its children, what they share counted once; 0 for one that is gone."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return sum(one.memory_full_info().pss for one in [root, *root.children(recursive=True)]) / 2**20
    return 0.0


def main(argv: list[str]) -> int:
    """Print both matrices."""
    cells = int(argv[0]) if argv else 1000
    steps = int(argv[1]) if len(argv) > 1 else 1275
    for seeds in SEEDS if cells <= OF_AXES else SEEDS[:1]:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(argv[2] if len(argv) > 2 else name) / f"test_matrix_{seeds}_seeds"
            make_matrix(directory, axes_of(seeds, cells), cells, steps)
            show(directory, f"{cells} cells of {steps} steps, {seeds} seeds")
    return 0


def show(directory: Path, what: str) -> None:
    """Print what a matrix takes."""
    megabytes = sum(path.stat().st_size for path in directory.glob("*/metrics.jsonl")) / 1e6
    measured(PARSE, directory)  # fills the file cache
    parsing, parsing_cpu = measured(PARSE, directory)
    measured(WARM, directory)
    together: list[float] = []
    seconds, cpu, others_cpu, memory = measured(REPORT, directory, together)
    looking, looking_cpu = measured(STATUS, directory)
    page = (directory / "report.html").stat().st_size / 1e6
    print(f"{what}, {megabytes:.0f} MB of journals")
    print(f"full report      {seconds:6.1f} s, {cpu:6.2f} s CPU, {memory:.0f} MB at most, page {page:.1f} MB")
    print(f"its second process         {others_cpu:6.2f} s CPU; both {max(together):.0f} MB at most")
    print(f"make status      {looking:6.1f} s, {looking_cpu:6.2f} s CPU")
    print(f"parsing, orjson  {parsing:6.1f} s, {parsing_cpu:6.2f} s CPU", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
