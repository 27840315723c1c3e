"""The cost of starting short LeNet-5 trainings, two at once: our fork server beside the usual ways, in turns.

python benchmarks/launch_cells.py [ROUNDS [CELLS [LONG_CELLS]]]

Every way trains the same cells in fresh run directories, from the start of its first process to the end of
its last: FEW cells and CELLS cells. What the walls hold beside the training loops themselves (the
`training_seconds` of the journals) is core seconds that a way takes once, and those that it takes a cell:
start, imports, configuration, data, run directory, agent, end. Then comes the share of the wall outside
training of LONG_CELLS cells (100; 0 for none) as the default preset has them. `cell_parts.py` tells what the
parts of a cell take.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kharness.matrix.launchers import open_launcher
from kharness.matrix.machine.resources import open_resources
from kharness.matrix.running.progress import MatrixProgress
from kharness.matrix.running.protocols import Queue
from kharness.matrix.running.runner import Runner
from kharness.matrix.running.signals import Signals
from kharness.runs.launch import HUGE_PAGES as HUGE_PAGES
from kharness.runs.launch import Launch

ROOT = Path(__file__).resolve().parent.parent
JOBS = 2
FEW, STEPS = 4, 100
# A run of 100 cells, each the training of the default preset, tells the share of the wall outside training.
LONG_CELLS, LONG_STEPS = 100, 1275

Way = Callable[[Sequence[Path]], None]


def runner(directories: Sequence[Path], *, fork_server: bool) -> None:
    """The runner of `make test_matrix`, without its planning and its report."""
    launches = [Launch(path.name, path, ROOT, "lenet5", {}) for path in directories]
    settings = {"MATRIX_JOBS": JOBS, "LAUNCHER_LOCAL_FORK_SERVER": fork_server}
    with (
        Signals() as signals,
        contextlib.closing(open_launcher("local", settings, print)) as launcher,
    ):
        resources = open_resources(settings, print)
        progress = MatrixProgress(io.StringIO(), len(launches))
        Runner(Queue(launches), launcher, resources, signals, progress).run()


def command(directory: Path) -> list[str]:
    return [sys.executable, "lenet5/train.py", "--run-dir", str(directory)]


def a_process_each(directories: Sequence[Path]) -> None:
    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(lambda path: subprocess.run(command(path), cwd=ROOT, capture_output=True), directories))


def gnu_make(directories: Sequence[Path]) -> None:
    rules = "".join(f"{path.name}:\n\t@{' '.join(command(path))} >/dev/null\n" for path in directories)
    names = " ".join(path.name for path in directories)
    makefile = directories[0].parent / "Makefile"
    makefile.write_text(f".PHONY: all {names}\nall: {names}\n{rules}")
    subprocess.run(["make", "-s", f"-j{JOBS}", "-f", str(makefile), "all"], cwd=ROOT, check=True)


def joblib_worker(directory: Path) -> None:
    """In a worker that goes on to the next cell: torch is imported once, and nothing is separate."""
    sys.path.insert(0, str(ROOT))
    sys.argv = command(directory)[1:]
    from lenet5 import train

    with contextlib.redirect_stdout(io.StringIO()):
        train.main(["--run-dir", str(directory)])


def with_joblib(directories: Sequence[Path]) -> None:
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor

    Parallel(n_jobs=JOBS)(delayed(joblib_worker)(path) for path in directories)
    get_reusable_executor().shutdown(wait=True)


def ways() -> dict[str, Way]:
    found: dict[str, Way] = {
        "kharness, forked": partial(runner, fork_server=True),
        "kharness, fresh": partial(runner, fork_server=False),
        "a Python process each": a_process_each,
        "GNU make -j": gnu_make,
    }
    try:
        import joblib  # noqa: F401
    except ImportError:
        print("joblib is not installed: pip install joblib")
    else:
        found["joblib (loky workers)"] = with_joblib
    return found


def cells(folder: Path, number: int, steps: int) -> list[Path]:
    """Run directories that are configured alike, with the files that a plan leaves in them."""
    first = folder / "cell1"
    settings = [f"CONFIG_MAX_STEPS={steps}", "CONFIG_NUM_THREADS=1", "CONFIG_DEVICE_CPU=y", "TRACKER=none"]
    subprocess.run(
        [sys.executable, "scripts/kconfig.py", "defconfig", f"O={first}", *settings],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    others = [folder / f"cell{place}" for place in range(2, number + 1)]
    for other in others:
        shutil.copytree(first, other)
    return [first, *others]


@dataclass(frozen=True)
class Measured:
    """Seconds: the wall clock, and what all cells together spent in their loops and in their runs."""

    wall: float
    loops: float
    """`training_seconds`: training and validation."""
    runs: float
    """Seconds from start record to end record: the test set and the last checkpoint too."""


def measure(way: Way, number: int, steps: int) -> Measured:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        directories = cells(Path(folder), number, steps)
        begun = time.perf_counter()
        way(directories)
        wall = time.perf_counter() - begun
        journals = [(path / "metrics.jsonl").read_text().splitlines() for path in directories]
        ends = [(json.loads(journal[0]), json.loads(journal[-1])) for journal in journals]
        wait_for_agents(directories)
    loops = sum(end["training_seconds"] for _, end in ends)
    return Measured(wall, loops, sum(end["time"] - start["time"] for start, end in ends))


def wait_for_agents(directories: Sequence[Path]) -> None:
    """They end by themselves; the next measurement is not to share the cores with them."""
    from monitoring.agent.lock import is_followed

    while any(is_followed(path) for path in directories):
        time.sleep(0.05)


def main(argv: Sequence[str]) -> int:
    given = dict(enumerate(map(int, argv)))
    rounds, number, long_cells = given.get(0, 3), given.get(1, 20), given.get(2, LONG_CELLS)
    os.environ["PYTHONUNBUFFERED"] = "1"
    contenders = ways()
    walls: dict[str, list[float]] = {name: [] for name in contenders}
    once: dict[str, list[float]] = {name: [] for name in contenders}
    each: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, way in contenders.items():
            beyond = {}
            for size in (FEW, number):
                found = measure(way, size, STEPS)
                beyond[size] = found.wall * JOBS - found.loops
            walls[name].append(found.wall)
            each[name].append((beyond[number] - beyond[FEW]) / (number - FEW))
            once[name].append(beyond[FEW] - FEW * each[name][-1])
    ours = next(iter(walls.values()))
    print(f"{number} cells of {STEPS} steps, {JOBS} at once, {rounds} paired rounds; core s beyond training")
    print(f"{'':24}     wall s    once  per cell   ratio of walls")
    for name in contenders:
        ratio = statistics.median(other / own for other, own in zip(walls[name], ours, strict=True))
        own, first, rest = (statistics.median(figures[name]) for figures in (walls, once, each))
        print(f"{name:24} {own:10.1f} {first:7.2f} {rest:9.3f} {ratio:16.2f}", flush=True)
    if long_cells:
        found = measure(contenders["kharness, forked"], long_cells, LONG_STEPS)
        loops, runs = (1 - part / (found.wall * JOBS) for part in (found.loops, found.runs))
        print(
            f"{long_cells} forked cells of {LONG_STEPS} steps: {found.wall:.1f} s, {runs:.1%} of it outside "
            f"their runs, {loops:.1%} outside their training loops"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
