"""Many run directories read by two processes, where the machine has two processors."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import ChainMap, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from kharness.report.runs import RunData, Series, load_run
from kharness.report.series_store import Layout, SeriesStore

FEWEST = 200
"""Runs from which on a second process is worth its start."""

PEAKS = ("gpu_mem_reserved", "cpu_mem_rss_mb")
"""Metrics of steps of which only the highest and the last point are held, where runs are not drawn."""

_AT_A_TIME = 20
_AHEAD = 2
"""Parts that the second process has before it, and whose runs wait in memory at most."""

Record = Mapping[str, object]

_Load = Callable[[Path], RunData]
_Read = tuple[RunData, tuple[int, Layout] | None]
"""A run, and where its series are if it has them no longer."""


class AlikeRecords:
    """Start records: what runs have in common, as nearly all of their options, is in memory once."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, ...], dict[str, object]] = {}

    def __call__(self, record: Record) -> Record:
        """Return the same record, in less memory."""
        names = tuple(record)
        if names not in self._first:
            self._first[names] = dict(record)
            return record
        like = self._first[names]
        own = {
            name: self(value) if isinstance(value, dict) else value
            for name, value in record.items()
            if not _same(value, like[name])
        }
        return ChainMap(own, like)


def _same(one: object, other: object) -> bool:
    """Whether they are written alike, which 1, 1.0 and True are not."""
    return type(one) is type(other) and one == other and (type(one) is str or repr(one) == repr(other))


def load_runs(directories: Sequence[Path], *, most_other_work: float, reads_more: bool) -> list[RunData]:
    """Read run directories as `load_run` does, in their order.

    Series are in a file and what records of runs have in common is there once: ten thousand runs fit into
    memory.
    """
    load: _Load = partial(load_run, most_other_work=most_other_work, reads_more=reads_more)
    return _runs(directories, load if reads_more else partial(_with_peaks, load))


def _runs(directories: Sequence[Path], load: _Load) -> list[RunData]:
    alike = AlikeRecords()
    runs: dict[int, RunData] = {}
    for first, store, some in _loaded(directories, load):
        for number, (run, place) in enumerate(some, first):
            run = replace(run, start=alike(run.start))
            runs[number] = run if place is None else replace(run, series=store.at(*place))
    return [runs[number] for number in range(len(directories))]


def _loaded(directories: Sequence[Path], load: _Load) -> Iterator[tuple[int, SeriesStore, Sequence[_Read]]]:
    """Yield some runs at a time: the number of the first, where their series are, and they themselves."""
    parts = [range(i, min(i + _AT_A_TIME, len(directories))) for i in range(0, len(directories), _AT_A_TIME)]
    own, others = SeriesStore(), SeriesStore()

    def read(part: range) -> tuple[int, SeriesStore, Sequence[_Read]]:
        return part.start, own, _load_into(own, load, [directories[i] for i in part])

    if len(directories) < FEWEST or not _may_fork():
        yield from map(read, parts)
        return
    left = deque(parts)
    waiting: deque[tuple[range, Future[Sequence[_Read]]]] = deque()
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), _begin, (others,)) as other:
        try:
            while left or waiting:
                while left and len(waiting) < _AHEAD:
                    part = left.pop()
                    given = [directories[i] for i in part]
                    waiting.append((part, other.submit(_load_beside, load, given)))
                if left:
                    yield read(left.popleft())
                while waiting and (not left or waiting[0][1].done()):
                    part, future = waiting[0]
                    yield part.start, others, future.result()
                    waiting.popleft()
        except BrokenProcessPool:  # killed, as for its memory: what it has not brought is read here
            yield from map(read, [*left, *(part for part, _ in waiting)])


_STORES: list[SeriesStore] = []
"""The store of the second process."""


def _begin(store: SeriesStore) -> None:
    _STORES.append(store)


def _load_beside(load: _Load, directories: Sequence[Path]) -> Sequence[_Read]:
    return _load_into(_STORES[0], load, directories)


def _load_into(store: SeriesStore, load: _Load, directories: Sequence[Path]) -> Sequence[_Read]:
    read: list[_Read] = []
    for directory in directories:
        run, place = load(directory), None
        with suppress(OSError):  # no room for temporary files: they stay in memory
            place = store.put(run.series)
        read.append((run if place is None else replace(run, series={}), place))
    return read


def _with_peaks(load: _Load, directory: Path) -> RunData:
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
