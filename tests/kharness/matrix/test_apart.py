"""Work done in a child: its result, its errors and its death."""

from __future__ import annotations

import os

import pytest

from kharness.config.errors import KharnessError
from kharness.matrix.apart import apart
from kharness.matrix.errors import MatrixError


def test_the_result_comes_back_and_nothing_else_does() -> None:
    seen: list[int] = []

    def work() -> tuple[int, list[str]]:
        seen.append(1)
        return os.getpid(), ["a" * 200_000]

    pid, lines = apart(work)
    assert (pid == os.getpid(), lines, seen) == (False, ["a" * 200_000], [])


def test_an_error_comes_back_with_its_hint() -> None:
    def work() -> None:
        raise KharnessError("no baseline", hint="name one")

    with pytest.raises(KharnessError, match="no baseline") as found:
        apart(work)
    assert found.value.hint == "name one"


def test_a_child_that_dies_is_told() -> None:
    with pytest.raises(MatrixError, match="the report ended with exit code -9"):
        apart(lambda: os.kill(os.getpid(), 9))
