"""A look (`make status`) at long runs: of 1,000,000 records each, one of them and 1,000.

python benchmarks/long_runs.py [RECORDS] [RUNS]

The cells of a matrix share one journal by hard links. Measured is the look itself, without the start of
Python, with status.json lost (the journal alone tells how a run ended) and with runs at work; beside that,
what it takes to read the one journal through.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.log_step import SCALARS
else:  # a script's folder is on its path
    from log_step import SCALARS

from kharness.config.assignment import Origin
from kharness.config.tree import Tree
from kharness.matrix.overview import look
from kharness.matrix.planning.plan import prepare
from kharness.matrix.selected_runs import find
from kharness.runs.files import STATUS_JSON
from kharness.runs.status import Attempt, RunStatus, write_status
from monitoring import Run, read_records
from monitoring.journal.files import JOURNAL

ROOT = Path(__file__).resolve().parent.parent
LOOKS = 5


def main(argv: list[str]) -> int:
    """Print what was measured."""
    records, runs = (int(argv[0]) if argv else 1_000_000), (int(argv[1]) if len(argv) > 1 else 1000)
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-") as name:
        folder = Path(name)
        journal = write_journal(folder / "long", records)
        tree = Tree.load(ROOT)
        axis = tree.assignments("MATRIX_AXES", f"SEED=1..{runs}", Origin("benchmark", "axes"))
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            plan = prepare(tree, folder, axis)
        directories = [launch.directory for launch in plan.launches]
        for directory in directories:
            os.link(journal, directory / journal.name)
            (directory / STATUS_JSON).unlink(missing_ok=True)
        print(f"runs of {records} records, {journal.stat().st_size / 1e6:.0f} MB each; median of {LOOKS}, s")
        show("one run, status.json lost", lambda: look(find(directories[0], ROOT)))
        show(f"{runs} runs, status.json lost", lambda: look(find(plan.directory, ROOT)))
        for directory in directories:
            write_status(directory, RunStatus("running", [Attempt(time.time(), os.getpid())]), durable=False)
        show("one run at work", lambda: look(find(directories[0], ROOT)))
        show(f"{runs} runs at work", lambda: look(find(plan.directory, ROOT)))
        show("to read one journal through", lambda: sum(1 for _ in read_records(journal)), looks=1)
    return 0


def write_journal(directory: Path, records: int) -> Path:
    with Run(directory, name="long", project="bench", config={}, agent=False) as run:
        run.start(model={"name": "m"}, training={"num_steps": records})
        for step in range(1, records + 1):
            run.log_step(step, **SCALARS)
    return directory / JOURNAL


def show(what: str, function: Callable[[], object], *, looks: int = LOOKS) -> None:
    """Time it and print the median."""
    seconds = []
    for _ in range(looks):
        begun = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begun)
    print(f"{what:<36}{statistics.median(seconds):>8.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
