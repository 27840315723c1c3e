"""Many run directories read by two processes, where the machine has two processors."""

from __future__ import annotations

import multiprocessing
import os
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from pathlib import Path

from kharness.report.runs import RunData, Series, load_run

FEWEST = 200
"""Runs from which on a second process is worth its start."""

PEAKS = ("gpu_mem_reserved", "cpu_mem_rss_mb")
"""Metrics of steps of which only the highest and the last point are held, where runs are not drawn."""

_AT_A_TIME = 20


def load_runs(directories: Sequence[Path], *, most_other_work: float, reads_more: bool) -> list[RunData]:
    """Read run directories as `load_run` does, in their order; steps that runs share are held once."""
    load = partial(load_run, most_other_work=most_other_work, reads_more=reads_more)
    load = load if reads_more else partial(_with_peaks, load)
    known: dict[bytes, array[int]] = {}
    return [_sharing_steps(run, known) for run in _loaded(directories, load)]


def _loaded(directories: Sequence[Path], load: Callable[[Path], RunData]) -> Iterator[RunData]:
    if len(directories) < FEWEST or not _may_fork():
        yield from map(load, directories)
        return
    middle = len(directories) // 2
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as other:
        others = other.map(load, directories[middle:], chunksize=_AT_A_TIME)
        yield from map(load, directories[:middle])
        try:
            for _ in range(middle, len(directories)):
                yield next(others)
                middle += 1
        except BrokenProcessPool:  # killed, as for its memory: what it has not brought is read here
            yield from map(load, directories[middle:])


def _with_peaks(load: Callable[[Path], RunData], directory: Path) -> RunData:
    run = load(directory)
    return replace(
        run, series={key: _peak(one) if key[1] in PEAKS else one for key, one in run.series.items()}
    )


def _peak(series: Series) -> Series:
    """The highest point and the last one."""
    highest = max(range(len(series)), key=series.values.__getitem__)
    kept = slice(highest, None, max(1, len(series) - 1 - highest))
    return Series(series.steps[kept], series.values[kept])


def _may_fork() -> bool:
    """Whether there is a second processor, and no thread whose locks a child would inherit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and threading.active_count() == 1 and "fork" in multiprocessing.get_all_start_methods()


def _sharing_steps(run: RunData, known: dict[bytes, array[int]]) -> RunData:
    series = {
        key: Series(known.setdefault(one.steps.tobytes(), one.steps), one.values)
        for key, one in run.series.items()
    }
    return replace(run, series=series)
