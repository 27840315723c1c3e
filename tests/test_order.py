"""The order of a whole run's tests."""

from __future__ import annotations

import fcntl
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.scheduler.worksteal import WorkStealingScheduling  # type: ignore[import-untyped]

from . import order
from .order import ordered, shares, together

MODULES = [["a1", "a2", "a3", "a4"], ["b1"], ["c1"], ["d1", "d2"], ["e1", "e2", "e3"], ["f1"]]


def test_long_modules_are_the_first_of_every_other_worker() -> None:
    found = ordered(MODULES, lambda module: module[0] in ("b1", "c1", "f1"), 4)
    assert found == [*("b1", "f1", "a1"), *("a2", "a3", "a4"), *("c1", "d1", "d2"), *("e1", "e2", "e3")]
    assert sorted(ordered(MODULES, lambda module: True, 4)) == sorted(test for one in MODULES for test in one)


def test_modules_that_share_a_fork_server_are_one() -> None:
    plain, forked, fresh, other = (
        SimpleNamespace(fixturenames=names)
        for names in (["root"], ["launchers", "forked"], [], ["launchers"])
    )
    modules: list[Any] = [[plain], [forked, fresh], [plain, plain], [other]]
    assert [*together(modules)] == [[plain], [plain, plain], [forked, fresh, other]]


def test_workers_take_turns(pytestconfig: pytest.Config) -> None:
    turn = order.pytest_collection_modifyitems(pytestconfig, [])
    next(turn)
    with open(str(order.__file__)) as of_another, pytest.raises(BlockingIOError):
        fcntl.flock(of_another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert next(turn, "over") == "over"


@pytest.mark.parametrize(("count", "workers"), [(6700, 6), (11, 4), (7, 3)])
def test_shares_are_those_of_the_scheduler(count: int, workers: int) -> None:
    class Node:
        shutting_down = False

        def __init__(self) -> None:
            self.given: list[int] = []
            self.gateway, self.id = self, "gw"

        def send_runtest_some(self, tests: list[int]) -> None:
            self.given += tests

        def send_steal(self, tests: list[int]) -> None:
            raise AssertionError("there is nothing to steal yet")

    config: Any = SimpleNamespace(getvalue=lambda name: ["popen"] * workers)
    scheduler = WorkStealingScheduling(config)
    nodes: list[Any] = [Node() for _ in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, [str(test) for test in range(count)])
    scheduler.schedule()
    given = [len(node.given) for node in nodes]
    assert given == list(shares(count, workers))
    assert [test for node in nodes for test in node.given] == list(range(count))
