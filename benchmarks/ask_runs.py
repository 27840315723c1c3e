"""Ask 10,000 runs: select by an option, by a metric, make rows of all, beside reading whole journals.

python benchmarks/ask_runs.py [RUNS]

Each run has a run.json of 80 options and a journal of 200 steps and four evaluations (68 kB). The files are
in the cache of the system; what is measured is one call, without the start of Python.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

import kharness
from monitoring import read_records
from monitoring.journal.files import JOURNAL, RUN_JSON


def main(argv: list[str]) -> int:
    """Print what was measured."""
    num = int(argv[0]) if argv else 10_000
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        write_runs(folder, num)
        select = kharness.runs
        print(f"{num} runs; wall and CPU seconds")
        show("select by options", lambda: select(folder, where="model = gpt2 and lr > 1e-4"))
        show("select by a last value", lambda: select(folder, where="val_loss < 0.1"))
        show("rows of all, without best values", lambda: select(folder).rows(best=False))
        show("best values of a hundred", lambda: [run.best for run in select(folder)[:100]])
        few = [run.directory for run in select(folder)[: num // 20]]
        show(
            f"every record of {len(few)} of them",
            lambda: [sum(1 for _ in read_records(one / JOURNAL)) for one in few],
        )
    return 0


def write_runs(folder: Path, num: int) -> None:
    """Copies of one run that differ in two options."""
    source = folder / ".source"
    options = {f"OPTION_{number}": number for number in range(80)}
    with kharness.Run(source, config=options, agent=False) as run:
        run.start(model={"name": "m"}, training={"num_steps": 200, "batch_size": 8})
        for step in range(1, 201):
            run.log_step(
                step, train_loss=1 / step, lr=1e-3, grad_norm=1.0, sec_per_step=0.1, samples_per_sec=80.0
            )
            if step % 50 == 0:
                run.log_eval(step, split="val", val_loss=2 / step, val_accuracy=0.5)
        run.finish(test_accuracy=0.9)
    about = orjson.loads((source / RUN_JSON).read_bytes())
    for number in range(num):
        directory = folder / f"matrix{number // 100:03}" / f"run{number:05}"
        directory.mkdir(parents=True)
        shutil.copyfile(source / JOURNAL, directory / JOURNAL)
        about["config"] |= {"lr": 10.0 ** -(number % 5), "model": ("gpt2", "lenet5")[number % 2]}
        (directory / RUN_JSON).write_bytes(orjson.dumps(about, option=orjson.OPT_INDENT_2))


def show(what: str, function: Callable[[], object]) -> None:
    """Time it, the better of two, and print that."""
    found = []
    for _ in range(2):
        begun, used = time.perf_counter(), time.process_time()
        function()
        found.append((time.perf_counter() - begun, time.process_time() - used))
    wall, cpu = min(found)
    print(f"  {what:<40} {wall:8.2f} {cpu:8.2f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
