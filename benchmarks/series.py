"""Any metric of a long run, from its never opened journal to a chart, beside the readers of two trackers.

python benchmarks/series.py [RECORDS] [OF THE OTHERS] [ROUNDS]

A journal of RECORDS step records of ten scalars (1,000,000) is read by kharness; one of fewer (100,000) also
by TensorBoard's EventAccumulator, with every point, and out of Trackio's database by its own function, after
the followers of kharness have delivered it there. Each reading is a process of its own, ROUNDS times (3) in
turns.

Columns: seconds to the first window that can be drawn, which is sampled where the journal is long, and until
every record is read; milliseconds of a window of 1,000 buckets over the whole run, over a twentieth of it and
over 500 records, each the median of some places; and by how much the process has grown, MB. The other readers
have one way only: all points.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from benchmarks.log_step import SCALARS
    from benchmarks.long_runs import write_journal
else:  # a script's folder is on its path
    from log_step import SCALARS
    from long_runs import write_journal

from monitoring.agent.follow import catch_up
from monitoring.journal.series import RunSeries

METRIC = next(iter(SCALARS))
COLUMNS = ("first", "all", "window", "twentieth", "zoom", "MB")
# Seconds that a page gives to reading before it draws again.
SLICE = 0.05
# Windows of each size.
PLACES = 9


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["read"]:
        print(json.dumps(READERS[argv[1]](Path(argv[2]), int(argv[3]))))
        return 0
    sizes = [int(text) for text in argv[:2]]
    records, fewer = (sizes + [1_000_000, 100_000][len(sizes) :]) if len(sizes) < 2 else sizes
    rounds = int(argv[2]) if len(argv) > 2 else 3
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ["TRACKIO_DIR"] = str(folder / "trackio")
        for size, directory in ((records, folder / "long"), (fewer, folder / "run")):
            journal = write_journal(directory, size)
            print(f"{size} records of ten scalars, {journal.stat().st_size / 1e6:.0f} MB", flush=True)
        catch_up(folder / "run", {"tensorboard": {}, "trackio": {}})
        print(f"{'':<24}{'records':>9}" + "".join(f"{column:>11}" for column in COLUMNS) + f"{'ratio':>8}")
        compare(["kharness"], folder / "long", records, rounds)
        compare([*READERS], folder / "run", fewer, rounds)
    return 0


def compare(names: Sequence[str], directory: Path, records: int, rounds: int) -> None:
    """Print the medians of each reader; the ratio is that of the time until all is read, to kharness."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            command = [sys.executable, __file__, "read", name, str(directory), str(records)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            taken[name].append(json.loads(done.stdout.splitlines()[-1]))
    for name, found in taken.items():
        medians = {it: statistics.median(one[it] for one in found) for it in COLUMNS if it in found[0]}
        ratio = statistics.median(
            one["all"] / other["all"] for one, other in zip(found, taken["kharness"], strict=True)
        )
        cells = [f"{medians[it]:>11.3f}" if it in medians else f"{'-':>11}" for it in COLUMNS]
        print(f"{name:<24}{records:>9}{''.join(cells)}{ratio:>8.2f}", flush=True)


def read_series(directory: Path, records: int) -> dict[str, float]:
    """kharness, as a page reads: a first look, then in slices."""
    before, began = _memory(), time.perf_counter()
    series = RunSeries(directory)
    series.refresh(0.0)
    assert len(series.window(METRIC)) > 0
    found = {"first": time.perf_counter() - began}
    while series.refresh(SLICE):
        pass
    found["all"] = time.perf_counter() - began
    found["MB"] = _memory() - before
    assert sum(series.window(METRIC).count) == records
    places = random.Random(1)
    for column, width in (("window", records), ("twentieth", records // 20), ("zoom", 500)):
        taken = []
        for _ in range(PLACES):
            low = places.randint(1, max(1, records - width))
            since = time.perf_counter()
            series.window(METRIC, lo=low, hi=low + width)
            taken.append(1000 * (time.perf_counter() - since))
        found[column] = statistics.median(taken)
    return found


def read_event_file(directory: Path, records: int) -> dict[str, float]:
    """TensorBoard's reader, with all points instead of a sample of them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    before, began = _memory(), time.perf_counter()
    accumulator = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    points = accumulator.Scalars(METRIC)
    return _all(len(points), records, began, before)


def read_trackio(directory: Path, records: int) -> dict[str, float]:
    """Read a run as Trackio's dashboard does."""
    from trackio.sqlite_storage import SQLiteStorage

    run = json.loads((directory / "run.json").read_bytes())
    before, began = _memory(), time.perf_counter()
    rows: list[dict[str, Any]] = SQLiteStorage.get_logs("bench", run_id=run["run_id"])
    return _all(sum(METRIC in row for row in rows), records, began, before)


READERS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "kharness": read_series,
    "EventAccumulator": read_event_file,
    "trackio get_logs": read_trackio,
}


def _all(found: int, records: int, began: float, before: float) -> dict[str, float]:
    """The figures of a reader that has all points or none."""
    assert found == records, f"{found} of {records}"
    seconds = time.perf_counter() - began
    return {"first": seconds, "all": seconds, "MB": _memory() - before}


def _memory() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
