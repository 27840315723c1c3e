"""Planning a matrix: every cell resolved by Kconfig, every directory written, the plan flushed to disk.

python benchmarks/plan_matrix.py [CELLS] [ROUNDS]

Beside it, reading the plan back, a dry run that has as many earlier runs to judge by as the matrix has cells,
and `make test_matrix_dry_run` of ten times as many cells, as a process. All rounds write side by side and are
removed together at the end: ext4 hands out new inodes slowly for half a minute after many were freed, which
would be charged to the next round.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from kharness.config.assignment import Layer, Origin
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.matrix.dry_run import dry_run_lines
from kharness.matrix.planning.plan import Plan, draft, load, prepare, with_launches
from kharness.matrix.running.durations import read_history

ROOT = Path(__file__).resolve().parent.parent


def main(argv: list[str]) -> int:
    """Print the median and the worst of some rounds."""
    cells = int(argv[0]) if argv else 1000
    rounds = int(argv[1]) if len(argv) > 1 else 5
    # In the checkout, so that the file system is the one that matrices are written to.
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-") as name:
        times = measure(cells, rounds, Path(name))
    print(f"{cells} cells, {rounds} rounds: seconds")
    print(f"{'':28} median  worst")
    for label, took in times.items():
        print(f"{label:28} {statistics.median(took):6.3f} {max(took):6.3f}")
    wall, cpu = dry_run_process(10 * cells)
    print(f"dry run of {10 * cells} cells, a process: {wall:.1f} s, {cpu:.1f} s of CPU")
    return 0


def measure(cells: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of each part, a round at a time."""
    times: dict[str, list[float]] = {}
    for number in range(rounds):
        output = folder / str(number)
        output.mkdir()
        results = output / "results"
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            tree = Tree.load(ROOT)
            layer = axes_layer(tree, cells)
            base = starting_layer(tree, output)
            with timed(times, "resolve all cells"):
                draft(tree, base, layer, results / "x")
            with timed(times, "plan: resolve and write"):
                plan = prepare(tree, output, layer)
        with timed(times, "read the plan back"):
            load(plan.directory, ROOT)
        finish(plan)
        with timed(times, "dry run with a history"):
            foreseen = with_launches(draft(tree, base, layer, results / "x"), ROOT)
            dry_run_lines(foreseen, read_history(results, tree.affects), shown="results")
    return times


@contextmanager
def timed(times: dict[str, list[float]], label: str) -> Iterator[None]:
    """Note how long the block takes."""
    started = time.perf_counter()
    yield
    times.setdefault(label, []).append(time.perf_counter() - started)


def dry_run_process(cells: int) -> tuple[float, float]:
    """Wall and CPU seconds of `make test_matrix_dry_run` of ten variants, without an earlier run."""
    axes = f"OPTIMIZER=sgd|adam|adamw|lion|muon BATCH_SIZE=32|64 SEED=1..{cells // 10}"
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "scripts/test_matrix_dry_run.py", f"MATRIX_AXES={axes}", f"O={folder}"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def axes_layer(tree: Tree, cells: int) -> Layer:
    """Six variants, with as many seeds as it takes."""
    axes = f"OPTIMIZER=all BATCH_SIZE=32|64 SEED=1..{-(-cells // 6)}"
    return tree.assignments("MATRIX_AXES", axes, Origin("make variable", "MATRIX_AXES"))


def finish(plan: Plan) -> None:
    """Make every run a complete one, as far as an estimate looks."""
    for cell, launch in zip(plan.cells, plan.launches, strict=True):
        assert cell.resolved is not None
        records = [
            {"event": "start", "attempt": 1, "steps_per_epoch": 85, "config": dict(cell.resolved.values)},
            {"event": "end", "attempt": 1, "status": "complete", "steps_done": 85, "training_seconds": 1.0},
        ]
        text = "".join(json.dumps(record) + "\n" for record in records)
        (launch.directory / "metrics.jsonl").write_text(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
