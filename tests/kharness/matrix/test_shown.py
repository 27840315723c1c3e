"""How a run is written down for people."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kharness.runs.launch import Launch


@pytest.mark.parametrize(
    ("interpreter", "shown"),
    [("/checkout/.venv/bin/python", ".venv/bin/python"), ("/usr/bin/python3", "/usr/bin/python3")],
)
def test_a_command_is_written_as_one_types_it(
    interpreter: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    root = Path("/checkout")
    inside = Launch("seed-1", root / "results/m/seed-1", root, "lenet5", {}, ["--from-scratch"])
    assert inside.command_line == f"{shown} lenet5/train.py --run-dir results/m/seed-1 --from-scratch"
    assert inside.command[0] == interpreter
    outside = Launch("seed-1", Path("/elsewhere/seed-1"), root, "lenet5", {})
    assert outside.command_line == f"{shown} lenet5/train.py --run-dir /elsewhere/seed-1"
