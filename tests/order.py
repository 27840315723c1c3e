"""With what the workers of a whole run begin: what waits for others, so that nobody ends alone with it.

A test on a Slurm cluster waits for its polls, while other workers use the cores. At the end of a run there is
nothing left to do meanwhile. Nor is a module stolen in part with which a worker begins: of one with a browser
each part would start its own, and a fork server of runs, which imports torch in three seconds, each worker.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

import pytest

T = TypeVar("T")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """One worker after the other: what Hypothesis finds in our modules it stores, for the others to read."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1 and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        modules = together([list(of_one) for _, of_one in groupby(items, lambda item: item.path)])
        items[:] = ordered(modules, lambda module: any(map(takes_long, module)), workers)
    with open(__file__) as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def needs(item: pytest.Item, *fixtures: str) -> bool:
    return not {*fixtures}.isdisjoint(getattr(item, "fixturenames", ()))


def takes_long(item: pytest.Item) -> bool:
    return (
        needs(item, "slurm", "cluster", "launchers", "browser") or item.get_closest_marker("slow") is not None
    )


def together(modules: Iterable[list[pytest.Item]]) -> Iterable[list[pytest.Item]]:
    """The modules, those that share `launchers` as one."""
    shared: list[pytest.Item] = []
    for module in modules:
        if any(needs(item, "launchers") for item in module):
            shared += module
        else:
            yield module
    yield shared


def ordered(modules: Iterable[list[T]], is_long: Callable[[list[T]], bool], workers: int) -> list[T]:
    """The tests, of which every other worker has some long modules first, and all of them equally many."""
    long: list[list[T]] = []
    others: list[T] = []
    for module in modules:
        if is_long(module):
            long.append(module)
        else:
            others += module
    found: list[T] = []
    for worker, size in enumerate(shares(sum(map(len, long)) + len(others), workers)):
        own = [] if worker % 2 else long[worker // 2 :: (workers + 1) // 2]
        first = [test for module in own for test in module]
        room = max(0, size - len(first))
        found += [*first, *others[:room]]
        del others[:room]
    return [*found, *others]


def shares(count: int, workers: int) -> Sequence[int]:
    """How many of so many tests `--dist worksteal` gives to each worker, in order."""
    found: list[int] = []
    for worker in range(workers):
        found.append((count - sum(found)) // (workers - worker))
    return found
